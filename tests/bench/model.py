"""An OpenAI-compatible model that answers at once, in a process of its own: costs it has none.

``python -m tests.bench.model`` prints its base URL and serves until it is ended.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
ANSWER = json.dumps(
    {
        "model": "instant",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "The answer is forty-two. " * 4},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 24, "total_tokens": 124},
    }
).encode()
HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(ANSWER)}\r\n\r\n"
RESPONSE = HEAD.encode() + ANSWER


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = LENGTH.search(head)
            await reader.readexactly(int(found[1]) if found else 0)
            writer.write(RESPONSE)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_converse, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    """The base URL of a running model."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        base_url = (await process.stdout.readline()).decode().strip()
        # Without one of its own a provider asks the real OpenAI.
        assert base_url, "the model did not start"
        yield base_url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
