"""`python -m headrace`: the command line where no script of that name is installed."""

from __future__ import annotations

from headrace.cli import main

if __name__ == "__main__":
    main(prog_name="headrace")
