"""Whether there is memory for a version beside those that run; asked before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import OverloadedError


@dataclass(frozen=True, slots=True)
class Need:
    """What a version will take of the device's memory, as far as can be told.

    Attributes:
        files_bytes: Of its model files: weights are at least that.
        taken_bytes: What the running version of the model took when it was loaded; 0 for unknown.
    """

    files_bytes: int
    taken_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The larger of the two."""
        return max(self.files_bytes, self.taken_bytes)


def check_room(need: Need, memory: tuple[int, int], *, what: str) -> None:
    """Refuse a version that does not fit beside what runs.

    Args:
        need: Of the version.
        memory: (free, total) bytes of the device.
        what: The version, for the text.

    Raises:
        NoRoomError: It does not fit.
    """
    free_bytes, total_bytes = memory
    if need.total_bytes <= free_bytes:
        return
    known_from = "its files have" if need.files_bytes >= need.taken_bytes else "it took before"
    raise NoRoomError(
        f"{what} needs about {need.total_bytes} bytes of memory, as {known_from}, beside what "
        f"runs; {free_bytes} of {total_bytes} are free: unload a model first"
    )


class NoRoomError(OverloadedError):
    """The memory is not there now; it may be later."""
