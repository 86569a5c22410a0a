"""The keyless model ``rules-1``: the provider kind ``offline``.

It is served as an httpx transport, so that the ordinary client, with its requests, errors and
retries, runs against it as against any other provider.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson

from agent_worker.llm import rules
from agent_worker.llm.client import ChatRequest, Message
from agent_worker.llm.completions import estimate_request
from agent_worker.llm.openai import EVENT_STREAM, OpenAIClient
from agent_worker.llm.tokens import estimate
from posthouse.settings import ProviderSettings
from posthouse.texts import Language

MODEL = "rules-1"
BASE_URL = "http://offline/v1"
TEXT_PIECE = 12
MOST_PIECES = 500
BYTE_PIECE = 1021

_FALLBACK = {
    "en": (
        "Offline mode: I match a few commands, I am not a language model. Try: {examples}. "
        "To use a real model, set a provider and the tiers in posthouse.yaml."
    ),
    "zh": (
        "离线模式：我只识别少量指令，不是语言模型。可以试试：{examples}。"
        "要使用真正的模型，请在 posthouse.yaml 中配置 providers 和 tiers。"
    ),
}
_SEPARATOR = {"en": ", ", "zh": "、"}


class RulesTransport(httpx.AsyncBaseTransport):
    """Answers ``/v1/chat/completions`` in this process."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """A chat completion, or an error in the usual shape."""
        if request.method != "POST" or request.url.path != "/v1/chat/completions":
            return _refusal(404, "not_found", f"no such path: {request.url.path}")
        try:
            body = orjson.loads(await request.aread())
        except orjson.JSONDecodeError as error:
            return _refusal(400, "invalid_request_error", f"the body is not JSON: {error}")
        if body.get("model") != MODEL:
            return _refusal(404, "model_not_found", f"there is no model {body.get('model')!r}")
        completion = _completion(body)
        if body.get("stream"):
            stream = _Pieces(event_stream(completion))
            return httpx.Response(200, headers={"content-type": EVENT_STREAM}, stream=stream)
        return httpx.Response(200, json=completion)


class _Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def build(name: str, provider: ProviderSettings) -> OpenAIClient:
    """The ordinary client with this transport."""
    return OpenAIClient(name, BASE_URL, transport=RulesTransport())


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    messages, tools = body.get("messages") or [], body.get("tools") or []
    message = rules.answer(messages, tools, _fallback)
    tokens_in = estimate_request(ChatRequest(messages=messages, tools=tools))
    tokens_out = estimate(_words(message))
    return {
        "id": f"off_{len(messages)}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


def event_stream(completion: dict[str, Any]) -> Iterator[bytes]:
    """A completion as server-sent events: text in pieces of a few characters, arguments in three.

    The bytes are cut anywhere, also inside a character, as on a network.
    """
    choice, message = completion["choices"][0], completion["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(message.get("content") or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        head = call["function"] | {"arguments": ""}
        deltas.append({"tool_calls": [call | {"index": index, "function": head}]})
        for piece in _cut(arguments, max(1, -(-len(arguments) // 3))):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    parts = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    parts.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    chunks = [_chunk(completion, choices=[part]) for part in parts]
    chunks.append(_chunk(completion, choices=[], usage=completion["usage"]))
    body = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks)
    body += b"data: [DONE]\n\n"
    return (body[start : start + BYTE_PIECE] for start in range(0, len(body), BYTE_PIECE))


def _chunk(completion: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {key: completion[key] for key in ("id", "created", "model")}
    return {**named, "object": "chat.completion.chunk", **more}


def _pieces(text: str) -> Iterator[str]:
    return _cut(text, max(TEXT_PIECE, len(text) // MOST_PIECES))


def _cut(text: str, length: int) -> Iterator[str]:
    return (text[start : start + length] for start in range(0, len(text), length))


def _words(message: Message) -> str:
    calls = message.get("tool_calls") or []
    return (message.get("content") or "") + "".join(c["function"]["arguments"] for c in calls)


def _fallback(language: Language, examples: list[str]) -> str:
    quoted = _SEPARATOR[language].join(f"“{example}”" for example in examples)
    return _FALLBACK[language].format(examples=quoted)


def _refusal(status: int, code: str, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": message}})
