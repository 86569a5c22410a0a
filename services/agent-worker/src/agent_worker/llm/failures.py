"""Reads what a provider says has failed: status, headers and error body to a typed error."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from agent_worker.llm.errors import (
    BadModelRequest,
    ContextTooLong,
    ModelAuth,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
)
from posthouse.errors import PosthouseError

_SHOWN = 300
# Codes of OpenAI, Moonshot and DashScope for an empty account, then of Z.ai and MiniMax.
_QUOTA = re.compile(
    r"insufficient_quota|exceeded_current_quota|insufficient.balance|Arrearage", re.IGNORECASE
)
_QUOTA_NUMBERS = frozenset({"1113", "1008"})
# "too many tokens, please wait" is throttling although it speaks of tokens: look here first.
_THROTTLED = re.compile(r"rate.?limit|too many (requests|tokens)|overloaded|throttl", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context (length|window|size)"
    r"|prompt is too long|exceed_context_size|input is too long|input length.*exceed",
    re.IGNORECASE,
)
_STATUS_OF_TYPE = {"invalid_request_error": 400, "authentication_error": 401}


class Failure(NamedTuple):
    """A refused call; status 200 if the error came inside a good response."""

    status: int
    code: str = ""
    message: str = ""
    retry_after_s: float | None = None


def inner_error(payload: Any) -> tuple[str, str] | None:
    """(code, message) of an error body, also of one inside a 200; None if it is none."""
    if not isinstance(payload, dict):
        return None
    if error := payload.get("error"):
        if not isinstance(error, dict):
            return "", str(error)
        codes = [str(error[key]) for key in ("code", "type") if error.get(key)]
        return " ".join(codes), str(error.get("message") or error)
    base = payload.get("base_resp")  # MiniMax
    if isinstance(base, dict) and base.get("status_code"):
        return str(base["status_code"]), str(base.get("status_msg", ""))
    return None


def to_error(failure: Failure, model: str) -> PosthouseError:
    """The typed error of a failed call; ``model`` is for the message."""
    kind = _kind(failure)
    said = f"{failure.code} {failure.message}".strip()[:_SHOWN]
    error = kind(
        f"{model}: status {failure.status}: {said or 'no reason given'}",
        model=model,
        status=failure.status,
    )
    if failure.retry_after_s is not None and isinstance(error, RateLimited | ModelUnavailable):
        error.retry_after_s = failure.retry_after_s
        error.details["retry_after_s"] = failure.retry_after_s
    return error


def _kind(failure: Failure) -> type[PosthouseError]:
    said = f"{failure.code} {failure.message}"
    status = _real_status(failure)
    if status == 402 or _QUOTA.search(said) or _QUOTA_NUMBERS & set(failure.code.split()):
        return QuotaExhausted
    if status in (429, 529) or _THROTTLED.search(said):
        return RateLimited
    if status == 413 or _TOO_LONG.search(said):
        return ContextTooLong
    if status in (401, 403):
        return ModelAuth
    if status in (200, 408, 409, 425) or status >= 500:
        return ModelUnavailable
    return BadModelRequest


def _real_status(failure: Failure) -> int:
    """The status; of an error inside a good response, the one that its code stands for."""
    if failure.status != 200:
        return failure.status
    for word in failure.code.split():
        if re.fullmatch("[45][0-9][0-9]", word):
            return int(word)
        if word in _STATUS_OF_TYPE:
            return _STATUS_OF_TYPE[word]
    return failure.status


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, from milliseconds, seconds or a date; None if none."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        named = headers.get("retry-after")
        if not named:
            return None
        if re.fullmatch(r"[\d.]+", named.strip()):
            return float(named)
        then = parsedate_to_datetime(named)
        return max(0.0, (then - datetime.now(then.tzinfo or UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
