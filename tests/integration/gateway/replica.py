"""A delivery replica as a process of its own, to be killed: see ``test_delivery_kill.py``."""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace

from gateway.main import build_rounds
from posthouse import bus
from tests.integration.gateway.post_office import FAST, FakeChannel, Sent


async def deliver(url: str, log: str, idempotent: bool, hang_after: str) -> None:
    """Deliver until SIGTERM; note each part in ``log`` when the platform has it, then hang at the
    part whose text is ``hang_after``, as if the platform's answer never came.
    """
    channel = FakeChannel(idempotent)

    async def note(sent: Sent) -> None:
        with open(log, "a", encoding="utf-8") as file:  # noqa: ASYNC230 - a line, in a test
            file.write(f"{sent.chat} {sent.text} {sent.key}\n")
        if sent.text == hang_after:
            await asyncio.Event().wait()

    channel.after = note
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connection = await bus.connect(url, "replica")
    with contextlib.suppress(asyncio.CancelledError):
        await build_rounds(connection, channel, replace(FAST, send_s=60)).run(stop)
    await bus.close(connection)


if __name__ == "__main__":
    url, log, idempotent = sys.argv[1:4]
    hang_after = os.environ.get("HANG_AFTER", "")
    asyncio.run(deliver(url, log, idempotent == "idempotent", hang_after))
