"""What stands in for a service in tests of the stack: answers /readyz, stops when asked.

The files of ``$STANDIN_DIR`` steer it: ``<name>.exit`` holds a code to end with at once,
``<name>.stubborn`` makes it ignore SIGTERM. What it does is appended to ``trace`` there.
"""

import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

DIRECTORY = Path(os.environ["STANDIN_DIR"])


class Ready(BaseHTTPRequestHandler):
    """Always ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to log."""


def trace(event: str) -> None:
    """Note what happened, in one write, so that processes do not mix."""
    with (DIRECTORY / "trace").open("a") as file:
        file.write(event + "\n")


def serve(name: str) -> None:
    """Be the service ``name``."""
    exit_file = DIRECTORY / f"{name}.exit"
    if exit_file.exists():
        print(f"{name}: this is why", flush=True)
        sys.exit(int(exit_file.read_text()))
    stubborn = (DIRECTORY / f"{name}.stubborn").exists()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else _leave)
    port = os.environ.get("POSTHOUSE_HTTP_PORT" if name == "gateway" else "POSTHOUSE_HEALTH_PORT")
    trace(f"start {name}")
    try:
        HTTPServer(("127.0.0.1", int(port or 0)), Ready).serve_forever()
    finally:
        trace(f"stop {name}")


def _leave(number: int, frame: object) -> None:
    # As real services do, it takes a moment: who does not wait for it is seen in the trace.
    time.sleep(0.05)
    sys.exit(0)
