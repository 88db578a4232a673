"""`--cache-config` as Triton writes it, and the older flag."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ServerConfig, load
from headrace.config.local_cache import MAX_BYTES, LocalCache, LocalCacheKind
from headrace.errors import ConfigError

KIND = LocalCacheKind()


@given(st.integers(0, MAX_BYTES))
def test_what_is_written_is_read(size_bytes: int) -> None:
    """As Triton's text, as the older flag's number, as a number of TOML."""
    cache = LocalCache(size_bytes)
    for raw in (KIND.show(cache), str(size_bytes), size_bytes, f" {KIND.show(cache)} ", cache):
        assert KIND.read(raw) == cache


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "local",
        "local,",
        "local,size",
        "local,size=",
        "local,size=1MB",
        "local,size=-1",
        "local,size=1.5",
        "local,size=\N{ARABIC-INDIC DIGIT ONE}",
        f"local,size={MAX_BYTES + 1}",
        f"local,size={'9' * 5000}",
        "local,size=1,size=2",
        "redis,host=here",
        "-1",
        True,
        1.5,
        ["local,size=1"],
    ],
)
def test_everything_else_is_refused(raw: object) -> None:
    """With what would be right."""
    with pytest.raises(ConfigError, match=r"--cache-config: got .*expected local,size=BYTES"):
        load({"cache_config": raw}, {})


def test_all_sources(tmp_path: Path) -> None:
    """A flag, a variable by either name, a file; none by default."""
    file = tmp_path / "headrace.toml"
    file.write_text("response_cache_byte_size = 5")
    assert load({}, {}).cache_config == ServerConfig().cache_config == LocalCache(0)
    assert load({"cache_config": "local,size=7"}, {}).cache_config == LocalCache(7)
    for name in ("HEADRACE_CACHE_CONFIG", "HEADRACE_RESPONSE_CACHE_BYTE_SIZE"):
        assert load({}, {name: "local,size=6"}, config_file=file).cache_config == LocalCache(6)
    assert load({}, {}, config_file=file).cache_config == LocalCache(5)
