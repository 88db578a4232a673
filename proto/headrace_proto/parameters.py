"""Takes named parameters out of a serialized request, so that what is left is the same for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARAMETER = 0x22  # an entry of ModelInferRequest.parameters
_KEY = 0x0A  # of that entry; every writer puts it first


def take_parameters(head: bytes, names: Iterable[bytes]) -> tuple[bytes, bytes] | None:
    """Split the head of a request into what remains and the parameters of these names.

    Args:
        head: As `split_request` gives it.
        names: UTF-8, shorter than 128 bytes.

    Returns:
        Two serialized ModelInferRequests which together are the head's. None where that cannot be
        said at a glance: a name is anywhere else, or a field is unusual or long.
    """
    wanted = tuple(bytes((_KEY, len(name))) + name for name in names)
    kept: list[bytes] = []
    taken: list[bytes] = []
    at, end = 0, len(head)
    try:
        while at < end:
            start = at
            tag, size = head[at], head[at + 1]
            at += 2
            if tag & 0x87 != 2:  # not delimited, or its number is above 15
                return None
            if size > 0x7F:
                if head[at] > 0x7F:
                    return None
                size = size & 0x7F | head[at] << 7
                at += 1
            is_taken = tag == _PARAMETER and head.startswith(wanted, at)
            at += size
            (taken if is_taken else kept).append(head[start:at])
    except IndexError:
        return None
    remains = b"".join(kept)
    if at != end or any(name in remains for name in names):
        return None
    return remains, b"".join(taken)
