"""Errors of the HTTP interface: ``{"error": {"code", "message"}}``, whatever went wrong."""

import math
from collections.abc import Awaitable, Callable

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gateway.ports import TooManyMessages
from gateway.receiving import BadSignature, NotAllowed
from posthouse.errors import (
    AddressError,
    BadMessage,
    BadRequest,
    PermanentError,
    PosthouseError,
    TransientError,
)

log = structlog.get_logger(__name__)

RETRY_LATER_S = 5


class Unauthorized(PermanentError):
    """The request needs the header Authorization: Bearer <admin token>."""

    code = "unauthorized"


class Forbidden(PermanentError):
    """Without an admin token only this machine may ask, and only in embedded mode."""

    code = "forbidden"


class TooLarge(PermanentError):
    """The request is larger than a message may be."""

    code = "too_large"


class TooSlow(PermanentError):
    """The request body did not come in time."""

    code = "request_timeout"


STATUS: list[tuple[type[PosthouseError], int]] = [
    (Unauthorized, 401),
    (BadSignature, 401),
    (Forbidden, 403),
    (NotAllowed, 403),
    (TooSlow, 408),
    (TooLarge, 413),
    (TooManyMessages, 429),
    (BadMessage, 400),
    (AddressError, 400),
    (BadRequest, 400),
    (TransientError, 503),
    (PosthouseError, 502),
]
"""First match counts; what another service refuses for reasons of its own is a bad gateway."""

CODES = {404: "not_found", 405: "method_not_allowed"}


def install(app: FastAPI) -> None:
    """Make the application answer every error in our shape."""
    handlers: list[tuple[type[Exception], Callable[..., Awaitable[JSONResponse]]]] = [
        (PosthouseError, _of_ours),
        (RequestValidationError, _invalid),
        (HTTPException, _of_http),
        (Exception, _unforeseen),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


def answer(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """An error as a response."""
    body = {"error": {"code": code, "message": message}}
    return JSONResponse(body, status_code=status, headers=headers)


async def _of_ours(request: Request, error: PosthouseError) -> JSONResponse:
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    headers = {}
    if isinstance(error, TransientError):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    elif status == 429:
        headers["Retry-After"] = str(RETRY_LATER_S)
    elif status == 401:
        headers["WWW-Authenticate"] = "Signature" if isinstance(error, BadSignature) else "Bearer"
    if status >= 500:
        log.warning("http.failed", status=status, code=error.code, reason=error.message)
    return answer(status, error.code, error.message, headers)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return answer(422, "invalid_request", f"{place}: {first['msg']}")


async def _of_http(request: Request, error: HTTPException) -> JSONResponse:
    code = CODES.get(error.status_code, "http_error")
    headers = dict(error.headers) if error.headers else None
    return answer(error.status_code, code, str(error.detail), headers)


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    log.error("http.crashed", path=request.url.path, kind=type(error).__name__)
    return answer(500, "internal", "internal error")
