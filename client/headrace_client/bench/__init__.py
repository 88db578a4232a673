"""The load generator ``headrace-client bench``: schedules, workers, and what they measured."""
