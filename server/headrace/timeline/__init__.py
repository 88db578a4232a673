"""Timelines: what sampled requests and the lanes did when, for Perfetto and for arithmetic."""
