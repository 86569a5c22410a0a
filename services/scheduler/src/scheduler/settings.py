"""Numbers of the scheduler; times in seconds."""

JETSTREAM_TIMEOUT_S = 2.0
LIST_TIMEOUT_S = 2.5
"""For all records together; callers wait 3 s for an answer."""
