"""A process that has memory of a GPU and shares it, as clients of CUDA shared memory do.

`Owner` is its hand in a test. The process itself (`main`) needs cuda-bindings and a GPU, and uses
no code of the server's but to open what another one shares. It answers each line by one:

    share SIZE              allocates and exports: the handle, in hex digits
    fill OFFSET SIZE SEED   writes random bytes of this seed
    check OFFSET SIZE SEED MORE   "same" if these bytes plus MORE, modulo 256, stand there
    own                     opens its own handle, as the server would: how that is refused
    open HANDLE             opens another's: its size, or how that is refused; then, whether the
                            GPU still works
"""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from helpers.cuda_checked import checked

ANSWER_S = 60.0  # a first call of CUDA takes seconds
WORKS = "; the GPU works"

SIZE = 6_220_800  # a full HD frame
ROOM = 16 << 20  # for two of them: whole blocks of the driver's, which have 2 MiB
OUT_AT = 8 << 20  # where the second one begins
NO_HANDLES = {"zeros": bytes(64), "ones": b"\xff" * 64, "noise": os.urandom(64), "short": bytes(63)}


class Owner:
    """One such process.

    Attributes:
        handle: Of what it shares.
        size_bytes: How much it allocated.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.cuda_owner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, _paths()))},
        )
        self.size_bytes = size_bytes
        self.handle = bytes.fromhex(self.ask("share", size_bytes)) if size_bytes else b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def ask(self, *words: object) -> str:
        """Its answer; an AssertionError when it has ended, or does not answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        is_there, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if is_there else b""
        assert line, f"no answer to {words[0]!r}; its exit code is {self.process.poll()}"
        return line.decode().strip()

    def fill(self, seed: int, size_bytes: int, offset: int = 0) -> None:
        """Write random bytes; they are there when it returns."""
        assert self.ask("fill", offset, size_bytes, seed) == "filled"

    def has(self, seed: int, size_bytes: int, offset: int = 0, *, more: int = 0) -> bool:
        """Whether the bytes of this seed stand there, `more` added to each."""
        return self.ask("check", offset, size_bytes, seed, more) == "same"

    def end(self) -> None:
        """Let it end by itself, as a client does that is done; a second call does nothing."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self._wait()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(ANSWER_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()


def _paths() -> list[str]:
    """What this process imports from; the folder of the helpers in any case."""
    given = os.environ.get("PYTHONPATH", "")
    return [str(Path(__file__).parents[1]), *filter(None, given.split(os.pathsep))]


def random_bytes(size_bytes: int, seed: int) -> npt.NDArray[np.uint8]:
    """(size_bytes,) uint8."""
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


class Memory:
    """What the process has allocated, from `address` on, and the handle that opens it."""

    def __init__(self, rt: Any, size_bytes: int) -> None:
        self._rt = rt
        self.address = int(checked(rt.cudaMalloc(size_bytes)))
        handle = checked(rt.cudaIpcGetMemHandle(self.address))
        self.handle = ctypes.string_at(handle.getPtr(), 64)

    def fill(self, offset: int, size_bytes: int, seed: int) -> str:
        """Write, and wait until it is there: the server's streams do not wait for ours."""
        data, kind = random_bytes(size_bytes, seed), self._rt.cudaMemcpyKind.cudaMemcpyHostToDevice
        to = self.address + offset
        checked(self._rt.cudaMemcpy(to, data.ctypes.data, size_bytes, kind))
        checked(self._rt.cudaDeviceSynchronize())
        return "filled"

    def check(self, offset: int, size_bytes: int, seed: int, more: int) -> str:
        """Compare."""
        data, kind = np.zeros(size_bytes, np.uint8), self._rt.cudaMemcpyKind.cudaMemcpyDeviceToHost
        source = self.address + offset
        checked(self._rt.cudaMemcpy(data.ctypes.data, source, size_bytes, kind))
        wanted = random_bytes(size_bytes, seed) + np.uint8(more)
        return "same" if np.array_equal(data, wanted) else "other"


def main() -> None:
    """Answer lines until there are no more."""
    from cuda.bindings import runtime as rt

    memory: Memory | None = None
    for line in sys.stdin:
        word, *words = line.split()
        if word == "share":
            memory = Memory(rt, int(words[0]))
            answer = memory.handle.hex()
        elif word == "open":
            answer = _opened(bytes.fromhex(words[0] if words else ""))
        else:
            assert memory is not None, "nothing is shared yet"
            if word == "own":
                answer = _opened(memory.handle)
            else:
                answer = getattr(memory, word)(*map(int, words))
        print(answer, flush=True)


def _opened(handle: bytes) -> str:
    """Open as the server does, and close; then hold that the GPU works."""
    from headrace.device.cudart import CudartDevice
    from headrace.errors import DeviceError

    device = CudartDevice.open(0)
    try:
        shared = device.open_shared(handle)
        answer = f"{shared.size_bytes} bytes"
        shared.close()
    except DeviceError as error:
        answer = f"sticky {error}" if error.sticky else f"refused: {error}"
    device.check()
    device.alloc_device(1000).close()
    device.close()
    return answer + WORKS


if __name__ == "__main__":
    main()
