"""Settings of the response cache, written as Triton's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from headrace.config.local_cache import LocalCache
from headrace.config.option import option

NO_CACHE: Final = LocalCache(0)


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Whether replies are kept."""

    GROUP: ClassVar = "Response cache"

    cache_config: LocalCache = option(
        NO_CACHE,
        "Keep replies, in so many bytes of memory, for those who ask the same again, of models "
        "whose config.pbtxt has response_cache { enable: true }. The older flag takes the bytes "
        "alone.",
        aliases=("response-cache-byte-size",),
        default_text="no cache",
    )
