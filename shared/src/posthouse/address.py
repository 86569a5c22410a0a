"""Addresses: who a message comes from, goes to, and which conversation it belongs to.

``scheme://domain[/id]`` with the schemes ``im``, ``agent`` and ``system``; the id may contain
slashes. An address is written as its URI string in JSON.
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from posthouse.errors import AddressError

SCHEMES = ("im", "agent", "system")
SEPARATOR = "://"
# Control characters, and lone surrogates, which UTF-8 cannot carry.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Address:
    """An immutable address. ``Address.parse(str(a)) == a`` holds for every address.

    Raises AddressError on an unknown scheme, an empty domain, a slash in the domain, or a
    control character or lone surrogate anywhere.
    """

    scheme: str
    domain: str
    id: str = ""

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise AddressError(
                f"unknown scheme {self.scheme!r}; use one of {', '.join(SCHEMES)}",
                scheme=self.scheme,
            )
        if not self.domain:
            raise AddressError("an address needs a domain, as in im://feishu/oc_x")
        if "/" in self.domain:
            raise AddressError("the domain of an address must not contain '/'")
        if found := _UNPRINTABLE.search(self.domain) or _UNPRINTABLE.search(self.id):
            raise AddressError(f"control character {found[0]!r} in an address")

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read ``scheme://domain[/id]``; an id may contain slashes. Raises AddressError."""
        scheme, separator, rest = text.partition(SEPARATOR)
        if not separator:
            raise AddressError(f"{text[:80]!r} is no address; write scheme://domain/id")
        domain, _, id_ = rest.partition("/")
        return cls(scheme, domain, id_)

    @classmethod
    def im(cls, channel: str, id: str) -> "Address":
        """A chat or user of an IM channel; ``channel`` may be ``<channel>+<bot>`` (R18)."""
        return cls("im", channel, id)

    @classmethod
    def agent(cls, *parts: str) -> "Address":
        """An agent by its path: ``agent("main", "code-reviewer")``."""
        if not parts:
            raise AddressError("an agent address needs at least one part")
        return cls("agent", parts[0], "/".join(parts[1:]))

    @classmethod
    def system(cls, name: str) -> "Address":
        """A part of the system itself, as ``system://cron``."""
        return cls("system", name)

    @property
    def is_im(self) -> bool:
        """True for a chat or user of an IM channel."""
        return self.scheme == "im"

    @property
    def is_agent(self) -> bool:
        """True for an agent."""
        return self.scheme == "agent"

    @property
    def is_system(self) -> bool:
        """True for a part of the system."""
        return self.scheme == "system"

    @property
    def channel(self) -> str:
        """The domain of an im address, '' for the others."""
        return self.domain if self.is_im else ""

    def __str__(self) -> str:
        tail = f"/{self.id}" if self.id else ""
        return f"{self.scheme}{SEPARATOR}{self.domain}{tail}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate,
            serialization=core_schema.to_string_ser_schema(),
            json_schema_input_schema=core_schema.str_schema(),
        )


def _validate(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        return Address.parse(value)
    raise AddressError(f"an address is a string, not {type(value).__name__}")
