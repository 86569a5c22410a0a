"""Posts to the outside; a post without an answer is a delivery of unknown outcome."""

from collections.abc import Mapping

from gateway.egress import Answer, Target
from gateway.ports import OutcomeUnknown
from posthouse.egress.http import HttpEgress
from posthouse.egress.targets import Request, Unanswered


class HttpPosts:
    """Egress by HTTP."""

    def __init__(self, http: HttpEgress) -> None:
        self._http = http

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """See Egress."""
        try:
            return await self._http.send(Request(target, headers, "POST", body))
        except Unanswered as error:
            raise OutcomeUnknown(error.message) from error
