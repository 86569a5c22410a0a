"""Errors of model calls, by what may be done about them.

TransientError
├── RateLimited        too many requests now; ``retry_after_s`` if the server named a time
├── ModelUnavailable   no connection, no answer in time, or the server's own failure
└── IncompleteAnswer   an answer came, but none that can be used
PermanentError
├── ModelAuth          the key is missing, wrong or not allowed
├── QuotaExhausted     nothing left to spend: waiting does not heal it
└── BadModelRequest    the provider refuses the request
    └── ContextTooLong more tokens than the model takes
"""

from posthouse.errors import PermanentError, TransientError


class RateLimited(TransientError):
    """The model provider takes no more requests now."""

    code = "rate_limited"


class ModelUnavailable(TransientError):
    """The model provider could not be reached or failed."""

    code = "model_unavailable"


class IncompleteAnswer(TransientError):
    """The model provider sent no usable answer."""

    code = "incomplete_answer"


class ModelAuth(PermanentError):
    """The model provider does not accept the key."""

    code = "model_auth"


class QuotaExhausted(PermanentError):
    """The account at the model provider has nothing left to spend."""

    code = "quota_exhausted"


class BadModelRequest(PermanentError):
    """The model provider refuses the request."""

    code = "bad_model_request"


class ContextTooLong(BadModelRequest):
    """The conversation has more tokens than the model takes."""

    code = "context_too_long"
