"""Keys: what clients call a shared memory object, and which of them the server may open.

A key becomes a name in one folder, so it is held to one plain name before anything is opened. No
text repeats one: who knows a key can read the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.errors import RequestError

MAX_KEY_BYTES: Final = 255  # of a file's name: NAME_MAX in limits.h

FOREIGN: Final = (
    "triton_python_backend_shm_region_",  # that Triton refuses, too
    "sem.",  # POSIX semaphores: sem_overview(7)
    "cuda.shm.",  # of the CUDA driver
    "nccl-",  # of NCCL
)
"""Begins of names that others' software makes in this folder and keeps its own state under."""


def file_name(key: str, prefixes: Sequence[str]) -> str:
    """Return the name of the file that a key stands for.

    Args:
        key: As the client sent it; one slash before it is taken away, as by shm_open(3).
        prefixes: What it must begin with, one of them; none for any key that is not FOREIGN.

    Raises:
        RequestError: It is no plain name, or not one that clients may use here.
    """
    name = key.removeprefix("/")
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise RequestError(
            "the key of shared memory must be one name, with a slash before it or without"
        )
    if len(name.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise RequestError(f"the key of shared memory has more than {MAX_KEY_BYTES} bytes")
    is_open = name.startswith(tuple(prefixes)) if prefixes else not name.startswith(FOREIGN)
    if not is_open:
        raise RequestError(
            "the key of shared memory begins with what clients may not use here; the operator "
            "knows which prefixes are open (--client-shm-key-prefix)"
        )
    return name
