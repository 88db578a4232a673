"""Stage 3 of 5: who runs next. Pure policy that is given the time; no clock, no I/O."""
