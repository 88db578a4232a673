"""Replies that are kept for those who ask the same again. Pure: no I/O, no clock."""
