"""Bearer tokens out of a file, read again when it changes.

Tokens are kept as keyed hashes and looked up by them: how long a look-up takes tells nothing about
a token, and no dump or log can hold one. A new file that is wrong leaves the former tokens in use.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from headrace.errors import ConfigError
from headrace.rpc.watched import fingerprint

log = logging.getLogger(__name__)

UNNAMED: Final = "unnamed"
_LOOK_EVERY_S: Final = 1.0  # calls may come by the ten thousand a second
_MAX_TOKENS: Final = 10_000
_MAX_FILE_BYTES: Final = 1 << 20
_FIELD: Final = "--grpc-auth-token-file"

# RFC 6750, section 2.1: b64token. It holds no colon, so a name may stand before one.
_LINE: Final = re.compile(r"(?:([0-9A-Za-z._-]{1,64}):\s*)?([0-9A-Za-z._~+/-]+=*)")
_MIN_CHARS: Final = 16
"""Of a token: 16 random characters of base64 are 96 bits, which nobody guesses over a network."""


class TokenFile:
    """The tokens in use; any thread may call any method."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """Read the file.

        Raises:
            ConfigError: Names the file, the line and what is wrong with it, never a token.
        """
        self._path = path
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._seen = fingerprint([path])
        self._names = self._read()
        self._look_at = clock() + _LOOK_EVERY_S
        self.num_calls = dict.fromkeys(self._names.values(), 0)
        self.num_reloads = {"ok": 0, "failed": 0}
        self.on_reload: Callable[[], None] | None = None  # told of new names

    def find(self, token: str) -> str | None:
        """Return the name of a token, None for one that is not taken; counts the call."""
        with self._lock:
            if self._clock() >= self._look_at:
                self._look()
            name = self._names.get(self._digest(token))
            if name is not None:
                self.num_calls[name] += 1
            return name

    def _look(self) -> None:
        self._look_at = self._clock() + _LOOK_EVERY_S
        seen = fingerprint([self._path])
        if seen == self._seen:
            return
        self._seen = seen
        try:
            names = self._read()
        except ConfigError as error:
            self.num_reloads["failed"] += 1
            log.error("new bearer tokens cannot be used, so the former stay in use: %s", error)
            return
        self._names = names
        for name in names.values():
            self.num_calls.setdefault(name, 0)
        self.num_reloads["ok"] += 1
        if self.on_reload is not None:
            self.on_reload()
        log.info("%d bearer tokens are in use now", len(names))

    def _read(self) -> dict[bytes, str]:
        try:
            raw = self._path.read_bytes()[: _MAX_FILE_BYTES + 1]
            text = raw.decode("ascii")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no ASCII text"
            raise self._error(f"cannot be read: {reason}") from None
        if len(raw) > _MAX_FILE_BYTES:
            raise self._error(f"is larger than {_MAX_FILE_BYTES} bytes")
        names: dict[bytes, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, token = self._parse(line.strip(), number)
            names[self._digest(token)] = name
        if not names:
            raise self._error("holds no token; write one a line, TOKEN or NAME:TOKEN")
        if len(names) > _MAX_TOKENS:
            raise self._error(f"holds {len(names)} tokens, expected at most {_MAX_TOKENS}")
        return names

    def _parse(self, line: str, number: int) -> tuple[str, str]:
        found = _LINE.fullmatch(line)
        if found is None:
            raise self._error(
                f"line {number} is neither TOKEN nor NAME:TOKEN; tokens are letters, digits and "
                "-._~+/ with = at the end, names letters, digits and -._"
            )
        name, token = found.groups()
        if len(token) < _MIN_CHARS:
            raise self._error(
                f"the token in line {number} has {len(token)} characters, expected {_MIN_CHARS} or "
                "more; `openssl rand -base64 32` makes one"
            )
        return name or UNNAMED, token

    def _digest(self, token: str) -> bytes:
        return blake2b(token.encode("latin-1", "replace"), key=self._key, digest_size=32).digest()

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(reason, path=str(self._path), field=_FIELD)
