"""Ends a worker whose event loop is blocked: its conversations go on elsewhere.

A blocked worker renews no lease, answers nothing and would live for ever. faulthandler's thread
needs no GIL, so it also ends a process that is stuck in C code, and prints where it hung.
"""

import faulthandler


class Watchdog:
    """Ends the process ``stall_s`` seconds after the last ``feed``."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s

    def feed(self) -> None:
        """The event loop runs."""
        faulthandler.dump_traceback_later(self._stall_s, exit=True)

    def stop(self) -> None:
        """Watch no more."""
        faulthandler.cancel_dump_traceback_later()
