"""Stage 1 of 5: the front door. Bytes, a deadline and a cancel signal come in; bytes go out."""
