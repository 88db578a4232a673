"""Stage 2 of 5: how the front door and the engine meet."""
