"""The OpenAPI document: what FastAPI cannot see by itself."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.intake import NewMessage
from posthouse.messages import Wire

SCHEMAS = "#/components/schemas"
BEARER = "bearer"


class Fault(Wire):
    """What went wrong: a stable code, and a text for people."""

    code: str
    message: str


class Problem(Wire):
    """The body of every error."""

    error: Fault


class Readiness(Wire):
    """What `/readyz` found: each check is `ok` or says what is wrong."""

    ready: bool
    checks: dict[str, str]


class Liveness(Wire):
    """The process answers."""

    alive: bool


ERRORS = {
    400: "The id, a header or the body cannot be used",
    401: "The bearer token or the signature is missing or wrong",
    403: "Not allowed from here, or for this sender",
    404: "No such path or bot",
    408: "The body did not come in time",
    413: "The body is larger than a message may be",
    422: "A query parameter cannot be used",
    429: "The conversation is full; see Retry-After",
    502: "Another service refused, for reasons of its own",
    503: "Not now; see Retry-After",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these errors."""
    # Not by ``model``: FastAPI would describe them in the media type of the route.
    return {status: _json(ERRORS[status], Problem) for status in statuses}


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """The ``openapi_extra`` of a route that reads its body by itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _json(description: str, model: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference(model)}}
    return {"description": description, "content": content}


def reference(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, by its name."""
    return {"$ref": f"{SCHEMAS}/{model.__name__}"}


class Application(FastAPI):
    """FastAPI, with a document that is complete."""

    def openapi(self) -> dict[str, Any]:
        """The document, made at the first call."""
        first = self.openapi_schema is None
        document = super().openapi()
        if first:
            _complete(document)
        return document


def _complete(document: dict[str, Any]) -> None:
    components = document["components"]
    models: list[type[BaseModel]] = [NewMessage, Problem, Readiness, Liveness]
    _, more = models_json_schema(
        [(model, "validation") for model in models], ref_template=f"{SCHEMAS}/{{model}}"
    )
    components["schemas"] |= more["$defs"]
    components["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        if path.startswith("/api/"):
            for operation in operations.values():
                # Without an admin token this machine needs none.
                operation["security"] = [{BEARER: []}]
    document["paths"] |= {
        "/healthz": _health("The process lives", {200: Liveness}),
        "/readyz": _health("The process can work, or why not", {200: Readiness, 503: Readiness}),
    }


def _health(summary: str, answers: dict[int, type[Wire]]) -> dict[str, Any]:
    responses = {str(status): _json(summary, model) for status, model in answers.items()}
    return {"get": {"summary": summary, "responses": responses}}
