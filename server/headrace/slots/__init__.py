"""Stage 4 of 5: work in flight on the device's streams."""
