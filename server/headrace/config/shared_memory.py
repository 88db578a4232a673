"""Settings of memory that clients of the same machine share with the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from headrace.config.network import MIB
from headrace.config.option import option


@dataclass(frozen=True, kw_only=True)
class SharedMemorySettings:
    """Whether clients may keep tensors in shared memory, and in which."""

    GROUP: ClassVar = "Shared memory"

    allow_client_shm: bool = option(
        False,
        "Let clients on this machine keep tensors in system shared memory, or in memory of the "
        "GPU, instead of sending them. Whoever may call can then have the server read and write "
        "such memory of its own user: only for clients that you trust with it.",
    )
    client_shm_key_prefix: tuple[str, ...] = option(
        (),
        "What the key of such memory must begin with. May be given several times.",
        default_text="any key but those of the CUDA driver, NCCL, semaphores and Triton's backends",
    )
    client_shm_uid: tuple[int, ...] = option(
        (),
        "User whose shared memory is opened, by number. May be given several times.",
        low=0,
        high=2**32 - 2,
        default_text="the server's own",
    )
    client_shm_max_regions: int = option(
        256, "Regions that clients may have registered at the same time.", low=1, high=65_536
    )
    client_shm_max_bytes: int = option(
        1024 * MIB, "Bytes of all these regions together.", low=1, high=2**50
    )
    client_shm_lease_s: int = option(
        60,
        "Seconds after its last use for which a region is kept that no other process has open any "
        "more.",
        flag="client-shm-lease-secs",
        low=1,
        high=86_400,
    )

    def shared_memory_faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield (setting, what came, how to mend it) for what does not go together."""
        if self.allow_client_shm:
            return
        for name in ("client_shm_key_prefix", "client_shm_uid"):
            if getattr(self, name):
                came = ",".join(map(str, getattr(self, name)))
                yield (
                    name,
                    f"got {came!r}, but shared memory is switched off",
                    "add --allow-client-shm, or leave it out",
                )
