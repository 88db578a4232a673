"""Where in which region a tensor of a request lies, as the request says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionPart:
    """Bytes of a region; whether it has them is known once it is taken into use."""

    name: str  # of the region
    offset: int  # in the region, bytes
    size_bytes: int

    def __len__(self) -> int:
        """As that of the bytes that it stands for."""
        return self.size_bytes
