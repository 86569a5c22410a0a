"""Request/reply between services: typed requests, typed results, typed errors.

Reply on the wire: ``{"ok": true, "result": …}`` or ``{"ok": false, "error": {code, message,
retryable, details}}`` (docs/rpc.md). A handler's error becomes such a reply, so that a
caller never waits for its timeout to learn of a failure.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import nats.errors
import orjson
import structlog
from nats.aio.client import Client
from pydantic import BaseModel, ValidationError

from posthouse import errors
from posthouse.bus import headers_from_context, message_scope
from posthouse.errors import BadRequest, Fenced, PermanentError, PosthouseError, Unavailable

if TYPE_CHECKING:
    from faststream.nats import NatsBroker, NatsMessage

log = structlog.get_logger(__name__)

DEFAULT_TIMEOUT_S = 3.0


class Raw(NamedTuple):
    """A result that is JSON already, as Postgres gave it; sent on without being parsed."""

    json: str


T = TypeVar("T", bound=BaseModel)
Result = BaseModel | Raw | None
Handler = Callable[[Any], Awaitable[Result]]


class RpcServer:
    """Collects handlers, then subscribes them all in one queue group.

    A handler takes one request model and returns a model, Raw or None.
    """

    def __init__(self, queue: str, concurrency: int = 64) -> None:
        self._queue = queue
        self._concurrency = concurrency
        self.methods: dict[str, tuple[type[BaseModel], Handler]] = {}

    def method(self, subject: str) -> Callable[[Handler], Handler]:
        """Serve ``subject``; the request model is the handler's first annotation."""

        def register(handler: Handler) -> Handler:
            self.add(subject, handler)
            return handler

        return register

    def add(self, subject: str, handler: Handler) -> None:
        """Serve ``subject`` with a handler; used for bound methods."""
        parameter = next(iter(inspect.signature(handler, eval_str=True).parameters.values()))
        self.methods[subject] = (parameter.annotation, handler)

    def attach(self, broker: "NatsBroker") -> None:
        """Subscribe every method on the broker."""
        for subject, (model, handler) in self.methods.items():
            # FastStream would send an empty reply of its own behind ours.
            subscriber = broker.subscriber(
                subject, queue=self._queue, max_workers=self._concurrency, no_reply=True
            )
            subscriber(_endpoint(subject, model, handler))


def _endpoint(
    subject: str, model: type[BaseModel], handler: Handler
) -> "Callable[[NatsMessage], Awaitable[None]]":
    async def endpoint(message: "NatsMessage") -> None:
        with message_scope(message.headers):
            reply = await _answer(subject, model, handler, message.body)
        await respond(message, reply)

    return endpoint


async def respond(message: "NatsMessage", reply: bytes) -> None:
    """Reply to a request, if it asks for a reply; one too large for NATS becomes an error."""
    raw = message.raw_message
    if not raw.reply:
        return
    try:
        await raw.respond(reply)
    except nats.errors.MaxPayloadError:
        log.error("rpc.reply_too_large", subject=raw.subject, size=len(reply))
        await raw.respond(encode_error(PermanentError("the reply is too large for NATS")))
    except nats.errors.Error as error:
        # The connection is gone: the caller's timeout tells it.
        log.warning("rpc.reply_lost", subject=raw.subject, error=type(error).__name__)


async def _answer(subject: str, model: type[BaseModel], handler: Handler, body: Any) -> bytes:
    try:
        request = model.model_validate_json(body)
    except ValidationError as error:
        return encode_error(_bad_request(error))
    try:
        return encode_result(await handler(request))
    except PosthouseError as error:
        return encode_error(error)
    except Exception as error:
        log.exception("rpc.failed", subject=subject)
        return encode_error(PosthouseError("internal error", kind=type(error).__name__))


def _bad_request(error: ValidationError) -> BadRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "request"
    return BadRequest(f"{place}: {first['msg']}", field=place)


def encode_result(result: Result) -> bytes:
    """The bytes of a good reply."""
    if isinstance(result, Raw):
        return b'{"ok":true,"result":' + result.json.encode() + b"}"
    if result is None:
        return b'{"ok":true,"result":{}}'
    return b'{"ok":true,"result":' + result.model_dump_json(exclude_none=True).encode() + b"}"


def encode_error(error: PosthouseError) -> bytes:
    """The bytes of an error reply."""
    return orjson.dumps(
        {
            "ok": False,
            "error": {
                "code": error.code,
                "message": error.message,
                "retryable": error.retryable,
                "details": error.details,
            },
        },
        default=str,
    )


class RemoteTransientError(errors.TransientError):
    """Another service failed in a way that may pass; ``details['code']`` is its code."""


class RemotePermanentError(PermanentError):
    """Another service refused; ``details['code']`` is its code."""


_BY_CODE: dict[str, type[PosthouseError]] = {
    cls.code: cls for cls in (errors.Busy, Fenced, BadRequest, errors.BadMessage, Unavailable)
}


class RpcClient:
    """Calls other services over a plain NATS connection."""

    def __init__(self, connection: Client) -> None:
        self._connection = connection

    async def call(
        self,
        subject: str,
        request: BaseModel,
        result: type[T],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> T:
        """Send a request, wait for its result.

        Raises Unavailable (no answer in ``timeout_s`` seconds, nobody serves it, no connection),
        Busy, Fenced, BadRequest, or the other errors of the service as RemoteTransientError or
        RemotePermanentError.
        """
        body = request.model_dump_json(exclude_none=True).encode()
        try:
            reply = await self._connection.request(
                subject, body, timeout=timeout_s, headers=headers_from_context() or None
            )
        except nats.errors.MaxPayloadError as error:
            raise BadRequest(f"{subject}: the request is too large for NATS") from error
        except nats.errors.NoRespondersError as error:
            raise Unavailable(f"{subject}: no service is there", subject=subject) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise Unavailable(f"{subject}: {type(error).__name__}", subject=subject) from error
        return decode_reply(reply.data, result)


def decode_reply(data: bytes, result: type[T]) -> T:
    """Read a reply; raises the error it carries."""
    try:
        reply = orjson.loads(data)
        if reply["ok"]:
            return result.model_validate(reply["result"])
        failure = reply["error"]
        code, message = failure["code"], failure["message"]
        details = failure.get("details") or {}
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError) as error:
        raise RemotePermanentError("the reply is not one of ours") from error
    if known := _BY_CODE.get(code):
        raise known(message, **details)
    family = RemoteTransientError if failure.get("retryable") else RemotePermanentError
    raise family(message, **{**details, "code": code})
