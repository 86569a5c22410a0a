"""Chat completions on the wire: writes requests, reads responses in all their dialects."""

from typing import Any

import orjson
import structlog

from agent_worker.llm.client import ChatRequest, ChatResponse, Message, Usage
from agent_worker.llm.errors import IncompleteAnswer
from agent_worker.llm.tokens import estimate

log = structlog.get_logger(__name__)

_SENT = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON body of a request; what is None or empty is left out."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_to_wire(message) for message in request.messages],
    }
    if request.tools:
        body["tools"] = request.tools
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def read(payload: Any, request: ChatRequest, model: str) -> ChatResponse:
    """The answer in a response body. Raises IncompleteAnswer if there is none."""
    choices = payload.get("choices") if isinstance(payload, dict) else None
    if not choices:
        raise IncompleteAnswer(f"{model}: the response has no choices", model=model)
    choice = choices[0]
    given = choice.get("message") or {}
    message: Message = {"role": "assistant", "content": _text(given.get("content"))}
    if reasoning := given.get("reasoning_content") or given.get("reasoning"):
        message["reasoning_content"] = _text(reasoning)
    if calls := [call for call in map(_call, given.get("tool_calls") or ()) if call]:
        message["tool_calls"] = calls
    usage = _usage(payload.get("usage"), request, message)
    return ChatResponse(
        message=message,
        usage=usage,
        finish_reason=_finish_reason(choice, message, usage, request),
        model=model,
    )


def _to_wire(message: Message) -> Message:
    """A history message as providers accept it."""
    wire = {key: value for key, value in message.items() if key in _SENT}
    if calls := wire.get("tool_calls"):
        wire["tool_calls"] = [_call_to_wire(call) for call in calls]
        if not wire.get("content"):
            wire.pop("content", None)
    return wire


def _call_to_wire(call: dict[str, Any]) -> dict[str, Any]:
    """Servers that parse replayed arguments refuse a request for one broken call of the past."""
    function = call["function"]
    try:
        orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        return call | {"function": function | {"arguments": "{}"}}
    return call


def _call(call: dict[str, Any]) -> dict[str, Any] | None:
    """A tool call with its arguments as a string; None for one without a name.

    Unknown fields are kept: some providers want them back. Ids may be absent or repeated.
    """
    function = call.get("function") or {}
    if not function.get("name"):
        log.warning("model.unnamed_tool_call")
        return None
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments or {}).decode()
    known = {"name": function["name"], "arguments": arguments if arguments.strip() else "{}"}
    return call | {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": function | known,
    }


def _text(content: Any) -> str:
    """Content that may be null, a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _usage(given: Any, request: ChatRequest, message: Message) -> Usage:
    """What the server counted, estimated where it did not."""
    if not isinstance(given, dict):
        given = {}
    counted_in, counted_out = given.get("prompt_tokens"), given.get("completion_tokens")
    return Usage(
        counted_in if isinstance(counted_in, int) else estimate_request(request),
        counted_out if isinstance(counted_out, int) else estimate(_spoken(message)),
    )


def estimate_request(request: ChatRequest) -> int:
    """Tokens of a request, about: messages and tool schemas."""
    messages = sum(4 + estimate(_spoken(message)) for message in request.messages)
    return messages + sum(estimate(orjson.dumps(tool).decode()) for tool in request.tools)


def _spoken(message: Message) -> str:
    calls = message.get("tool_calls")
    text = _text(message.get("content"))
    return text + orjson.dumps(calls).decode() if calls else text


def _finish_reason(
    choice: dict[str, Any], message: Message, usage: Usage, request: ChatRequest
) -> str:
    """``length`` for a cut-off answer, whatever the server calls it."""
    reason = str(choice.get("finish_reason") or "")
    full = request.max_tokens is not None and usage.output_tokens >= request.max_tokens
    if reason == "length" or full:
        return "length"
    return "tool_calls" if "tool_calls" in message else reason or "stop"
