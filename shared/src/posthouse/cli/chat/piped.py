"""A chat without a terminal: lines in, answers out, one after the other."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from itertools import chain

from posthouse.cli.chat.local import Leave, read_local
from posthouse.cli.conversation import Conversation
from posthouse.cli.send import print_answers

# More than a turn may take (budgets.deadline_s, 600 by default).
ANSWER_TIMEOUT_S = 900.0
BYTES = "surrogateescape"
END = ""


async def converse(conversation: Conversation) -> None:
    """Send each line when the one before is answered, up to the end of the input.

    So an answer may depend on the one before, and a question of the agent is answered by the
    next line. Raises BadRequest, Unavailable, and Exit(3) for an answer that does not come.
    """
    async for line in _lines():
        if isinstance(read_local(line), Leave):
            return
        message = conversation.message(line)
        await conversation.send(message)
        await print_answers(conversation, message, ANSWER_TIMEOUT_S)


async def _lines() -> AsyncIterator[str]:
    """The lines of the input that are not blank.

    A thread reads them: asyncio cannot wait for a file. It is a daemon, so that Ctrl-C does not
    wait for the next line.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        # Bytes that are no UTF-8 become surrogates, and an error that says so.
        with open(sys.stdin.fileno(), encoding="utf-8", errors=BYTES, closefd=False) as given:
            for line in chain(given, [END]):
                loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) != END:
        if line.strip():
            yield line.rstrip("\n")
