"""Memory of a GPU that another process shares, as the memory of a region.

The device copies it, and nobody else: what the host would have to look at cannot lie here. Nothing
tells whether its owner is alive, or still wants it.
"""

from __future__ import annotations

from headrace.errors import RequestError


class DeviceMemory:
    """All of one opening; what is opened is the region's `pin`, which ends it."""

    is_on_device = True
    is_shared: bool | None = None
    is_unlinked = False

    def read_into(self, view: memoryview, offset: int) -> None:  # noqa: ARG002
        """Refuse.

        Raises:
            RequestError: Always.
        """
        raise RequestError(
            "it lies in a GPU's memory, and the values of this input are needed on the host (as "
            "those of BYTES, of shape tensors and of ensembles): send it in the message, or in "
            "system shared memory"
        )

    def write(self, data: memoryview | bytes, offset: int) -> None:  # noqa: ARG002
        """Refuse.

        Raises:
            RequestError: Always.
        """
        raise RequestError(
            "it lies in a GPU's memory, and this output comes from the host: ask for it in the "
            "message, or in system shared memory"
        )

    def check(self, end: int) -> None:
        """Do nothing: it does not become shorter."""

    def close(self) -> None:
        """Do nothing; see above."""
