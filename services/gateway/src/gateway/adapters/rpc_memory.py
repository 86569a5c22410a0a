"""The memory service, asked over NATS."""

from gateway.settings import MEMORY_TIMEOUT_S
from posthouse import subjects
from posthouse.errors import PermanentError, Unavailable
from posthouse.rpc import RpcClient
from posthouse.turns import MissingRequest, MissingResult, Outgoing, RecallRequest, RecallResult

RECALL = subjects.memory("history", "recall")
MISSING = subjects.memory("delivery", "missing")


class RpcMemory:
    """History, and outbound messages that the bus did not bring."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client

    async def recall(self, request: RecallRequest) -> RecallResult:
        """A page of a conversation. Raises Unavailable and the errors of the service."""
        return await self._client.call(RECALL, request, RecallResult, MEMORY_TIMEOUT_S)

    async def missing(self, key: str, generation: int, seq: int) -> Outgoing | None:
        """The stored message, None when there is none. Raises TransientError."""
        request = MissingRequest(key=key, generation=generation, seq=seq)
        try:
            found = await self._client.call(MISSING, request, MissingResult, MEMORY_TIMEOUT_S)
        except PermanentError as error:
            # No answer to the question: the conversation waits until memory is mended.
            raise Unavailable(f"memory refuses to answer: {error.message}") from error
        return found.outgoing
