"""The OpenAPI document; that the answers are as it says is in ``test_fuzz.py``."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.app import build_app
from posthouse.health import Health
from posthouse.settings import Settings

MESSAGES = "/api/conversations/{conversation_id}/messages"
EVENTS = "/api/conversations/{conversation_id}/events"


@pytest.fixture
def document() -> dict[str, Any]:
    app = build_app(Settings(), Health())
    assert app.openapi() == app.openapi()
    return app.openapi()


def errors_of(operation: dict[str, Any]) -> set[str]:
    """The statuses that are documented as our errors."""
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses = operation["responses"]
    return {status for status in responses if responses[status].get("content") == problem}


def test_every_route_is_there(document: dict[str, Any]) -> None:
    operations = {(path, method) for path, found in document["paths"].items() for method in found}
    assert operations == {
        (MESSAGES, "get"),
        (MESSAGES, "post"),
        (EVENTS, "get"),
        ("/webhooks/{channel}", "post"),
        ("/webhooks/{channel}/{bot}", "post"),
        ("/healthz", "get"),
        ("/readyz", "get"),
    }


def test_errors_are_in_our_shape(document: dict[str, Any]) -> None:
    everywhere = {"400", "401", "403", "404", "422", "502", "503"}
    post, get = document["paths"][MESSAGES]["post"], document["paths"][MESSAGES]["get"]
    assert errors_of(post) == everywhere | {"408", "413", "429"}
    assert errors_of(get) == errors_of(document["paths"][EVENTS]["get"]) == everywhere
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_only_the_api_asks_for_the_token(document: dict[str, Any]) -> None:
    secured = {
        path
        for path, operations in document["paths"].items()
        if any("security" in operation for operation in operations.values())
    }
    assert secured == {MESSAGES, EVENTS}


def test_events_are_a_stream(document: dict[str, Any]) -> None:
    content = document["paths"][EVENTS]["get"]["responses"]["200"]["content"]
    assert list(content) == ["text/event-stream"]


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"content": "hi"}, True),
        ({"media": [{"url": "https://x.example/a.png"}]}, True),
        ({"content": "", "media": [{"object": "k"}]}, True),
        ({}, False),
        ({"content": " "}, False),
        ({"media": []}, False),
        ({"content": 7}, False),
    ],
)
def test_the_body_of_a_message(document: dict[str, Any], body: Any, fits: bool) -> None:
    post = document["paths"][MESSAGES]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})
    assert validator.is_valid(body) == fits
