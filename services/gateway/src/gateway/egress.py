"""The way out, as channels see it."""

from collections.abc import Mapping
from typing import Protocol

from posthouse.egress.targets import Answer, Refused, Target

__all__ = ["Answer", "Egress", "Refused", "Target"]


class Egress(Protocol):
    """Calls targets. Redirects are answers like others: nobody follows them."""

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post a body; of the answer's body comes the beginning.

        Raises Refused for a private address, Unavailable when nothing was sent, and
        OutcomeUnknown when the server may have got it.
        """
        ...
