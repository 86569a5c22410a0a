"""Readiness checks that several services share, in words for an operator."""

from nats.aio.client import Client

from posthouse import subjects
from posthouse.address import Address
from posthouse.bus import without_password
from posthouse.errors import PosthouseError, Unavailable
from posthouse.rpc import RpcClient
from posthouse.turns import RecallRequest, RecallResult

# Below the time that a check has: its own words say more than "no answer".
MEMORY_TIMEOUT_S = 1.5
RECALL = subjects.memory("history", "recall")
NOBODY = subjects.key(Address.system("health"))


def connected(connection: Client | None, url: str) -> Client:
    """The connection. Raises Unavailable while there is none."""
    if connection is None or not connection.is_connected:
        raise Unavailable(f"NATS is not connected at {without_password(url)}")
    return connection


async def memory_answers(connection: Client) -> None:
    """Ask memory for a history, which reads Postgres. Raises Unavailable with what is missing."""
    request = RecallRequest(key=NOBODY, limit=1)
    try:
        await RpcClient(connection).call(RECALL, request, RecallResult, MEMORY_TIMEOUT_S)
    except PosthouseError as error:
        raise Unavailable(f"the memory service cannot be used: {error.message}") from error
