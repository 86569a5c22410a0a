"""Errors, by what the bus must do with them.

PosthouseError
├── TransientError        retry later: the same request may succeed
│   ├── Unavailable       a server or service did not answer in time
│   └── Busy              it answered that it has no capacity now
└── PermanentError        retrying cannot help: answer or dead-letter
    ├── AddressError      text that is not an address
    ├── BadMessage        a body that cannot be understood or stored
    ├── BadRequest        an RPC request its service refuses
    ├── Fenced            this worker no longer owns the conversation
    ├── ConfigError       configuration that cannot be used
    └── Drift             a stream, consumer or schema is not in the shape this code needs

Every error has a stable ``code`` (the wire name) and typed fields in ``details``.
"""

from typing import Any, ClassVar


class PosthouseError(Exception):
    """Root of all our errors. ``details`` holds typed fields, never message text or secrets."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", /, **details: Any) -> None:
        super().__init__(message or (self.__doc__ or "").split("\n")[0])
        self.message = str(self)
        self.details = details


class TransientError(PosthouseError):
    """The same request may succeed later."""

    code = "transient"
    retryable = True
    retry_after_s: float = 2.0


class Unavailable(TransientError):
    """A server or service did not answer in time."""

    code = "unavailable"


class Busy(TransientError):
    """The service has no capacity right now."""

    code = "busy"
    retry_after_s = 0.5


class PermanentError(PosthouseError):
    """Retrying cannot help."""

    code = "permanent"


class AddressError(PermanentError, ValueError):
    """The text is not an address."""

    code = "address"


class BadMessage(PermanentError, ValueError):
    """The body cannot be understood or stored."""

    code = "bad_message"


class BadRequest(PermanentError):
    """The service refuses this request."""

    code = "bad_request"


class Fenced(PermanentError):
    """This worker no longer owns the conversation."""

    code = "fenced"


class ConfigError(PermanentError):
    """The configuration cannot be used."""

    code = "config"


class Drift(PermanentError):
    """A stream, consumer or schema is not in the shape this version needs."""

    code = "drift"
