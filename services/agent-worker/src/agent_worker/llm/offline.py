"""The keyless model ``rules-1``: the provider kind ``offline``.

It is served as an httpx transport, so that the ordinary client, with its requests, errors and
retries, runs against it as against any other provider.
"""

from typing import Any

import httpx
import orjson

from agent_worker.llm import rules
from agent_worker.llm.client import ChatRequest, Message
from agent_worker.llm.completions import estimate_request
from agent_worker.llm.openai import OpenAIClient
from agent_worker.llm.tokens import estimate
from posthouse.settings import ProviderSettings
from posthouse.texts import Language

MODEL = "rules-1"
BASE_URL = "http://offline/v1"

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
        if body.get("stream"):
            return _refusal(400, "invalid_request_error", "streaming is not supported")
        return httpx.Response(200, json=_completion(body))


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


def _words(message: Message) -> str:
    calls = message.get("tool_calls") or []
    return (message.get("content") or "") + "".join(c["function"]["arguments"] for c in calls)


def _fallback(language: Language, examples: list[str]) -> str:
    quoted = _SEPARATOR[language].join(f"“{example}”" for example in examples)
    return _FALLBACK[language].format(examples=quoted)


def _refusal(status: int, code: str, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": message}})
