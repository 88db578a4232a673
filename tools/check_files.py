"""pre-commit hook: TOML and YAML parse, and no file is large.

tools/check_files.py FILE...
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import yaml

# The largest file that is meant to be here is the digits model (under 200 kB).
MAX_FILE_BYTES = 512 * 1024


def fault_of(path: Path) -> str | None:
    """Say what is wrong with one file, or None."""
    size_bytes = path.stat().st_size
    if size_bytes > MAX_FILE_BYTES:
        return f"{size_bytes} bytes, over {MAX_FILE_BYTES}: generate it instead"
    try:
        if path.suffix == ".toml":
            tomllib.loads(path.read_text("utf-8"))
        elif path.suffix in {".yaml", ".yml"}:
            list(yaml.safe_load_all(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        return str(error)
    return None


def main() -> int:
    """Check the files named on the command line; 1 when any has a fault."""
    faults = {path: fault_of(path) for path in map(Path, sys.argv[1:]) if path.is_file()}
    for path, fault in faults.items():
        if fault:
            print(f"{path}: {fault}")
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main())
