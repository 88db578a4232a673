"""Bearer tokens out of a file: which are taken, how it is read again, and what is not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.rpc.tokens import UNNAMED, TokenFile

OLD, NEW, OTHER = "old-token-0123456789", "new.token~0123456789+/==", "x" * 16


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def opened(path: Path, text: str, clock: Clock | None = None) -> TokenFile:
    path.write_text(text)
    return TokenFile(path, clock=clock or Clock())


def test_lines(path: Path) -> None:
    """A token alone, one with a name, comments and empty lines; the same name may stand twice."""
    tokens = opened(
        path, f"# made by hand\n\n{OLD}\ncam-1: {NEW}\r\n  cam-1:{OTHER}  \n\n# end of the file"
    )
    assert tokens.find(OLD) == UNNAMED
    assert tokens.find(NEW) == tokens.find(OTHER) == "cam-1"
    assert tokens.num_calls == {UNNAMED: 1, "cam-1": 2}


@pytest.mark.parametrize(
    "token", ["", " ", OLD[:-1], OLD + "x", OLD.upper(), f" {OLD}", f"cam-1:{NEW}", "\u00e9" * 20]
)
def test_anything_else_is_no_token(token: str, path: Path) -> None:
    """Neither a part of one nor one in other letters, nor a line of the file."""
    tokens = opened(path, f"{OLD}\ncam-1:{NEW}\n")
    assert tokens.find(token) is None
    assert set(tokens.num_calls.values()) == {0}


def test_a_changed_file_is_taken(path: Path) -> None:
    """A second later at the latest; who only has the old token is out."""
    clock = Clock()
    tokens = opened(path, f"a:{OLD}\n", clock)
    told: list[dict[str, int]] = []
    tokens.on_reload = lambda: told.append(dict(tokens.num_calls))
    tokens.find(OLD)
    path.write_text(f"a:{NEW}\nb:{OTHER}\n")
    assert tokens.find(OLD) == "a"  # not yet looked at again
    clock.now = 1.0
    assert tokens.find(OLD) is None
    assert tokens.find(NEW) == "a"
    assert tokens.num_reloads == {"ok": 1, "failed": 0}
    assert told == [{"a": 2, "b": 0}]


WRONG = {
    "empty": "",
    "only comments": "# nothing\n",
    "a space": f"{NEW} x\n",
    "too short": "short\n",
    "a bad name": f"a/b:{NEW}\n",
    "two colons": f"a:b:{NEW}\n",
    "a scheme": f"Bearer {NEW}\n",
    "no text": "\u00e9" * 20,
    "huge": f"{NEW}\n" + "#" * (1 << 20),
    "many": "".join(f"{index:020}\n" for index in range(10_001)),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_file(text: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start an error, later one in the log, and the former tokens stay. None is shown."""
    with pytest.raises(ConfigError) as error:
        opened(path, text)
    assert str(error.value).startswith(f"{path}: --grpc-auth-token-file: ")
    clock = Clock()
    tokens = opened(path, f"{OLD}\n", clock)
    path.write_text(text)
    for clock.now in (1.0, 2.0, 3.0):
        assert tokens.find(OLD) == UNNAMED
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert tokens.num_reloads == {"ok": 0, "failed": 1}
    for told in (str(error.value), caplog.text):
        assert NEW not in told
        assert "Bearer" not in told


def test_a_file_that_is_gone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The tokens stay in use, and the log says so."""
    clock = Clock()
    tokens = opened(path, f"{OLD}\n", clock)
    path.unlink()
    clock.now = 1.0
    assert tokens.find(OLD) == UNNAMED
    assert "No such file" in caplog.text


def test_nothing_that_is_kept_holds_a_token(path: Path) -> None:
    """A dump of the process shows hashes, and another process hashes in another way."""
    tokens = opened(path, f"{OLD}\n")
    assert OLD not in repr(vars(tokens))
    (kept,) = tokens._names
    (other,) = opened(path, f"{OLD}\n")._names
    assert kept != other
