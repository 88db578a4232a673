"""Stage 5 of 5: what computes. Engines, and the files and configurations they are loaded from."""
