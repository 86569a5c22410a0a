"""Requests made from the OpenAPI document of a running gateway, and what must hold for each."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

Operation = APIOperation[Any, Any, Any, Any]
AnyCase = Case[Operation]

TIMEOUT_S = 20.0
STREAM = "text/event-stream"
CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
KNOWN = {"conversation_id": "fuzz/中", "channel": "webhook", "bot": "shop"}
"""Paths that lead somewhere."""
TOKENS = ["right"] * 8 + ["", "wrong"]


class Fuzzer:
    """Asks every operation of the document; ``answers`` counts them by operation and status."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self.answers: Counter[tuple[str, int]] = Counter()
        self._schema = schemathesis.openapi.from_url(f"{url}/openapi.json")

    @property
    def total(self) -> int:
        """How many requests were made."""
        return sum(self.answers.values())

    def run(self, examples: int, seed_: int) -> None:
        """``examples`` requests to each operation. Raises what the checks of schemathesis raise."""
        for found in self._schema.get_all_operations():
            assert isinstance(found, Ok), found
            self._fuzz(found.ok(), examples, seed_)

    def _fuzz(self, operation: Operation, examples: int, seed_: int) -> None:
        cases = operation.as_strategy()
        if operation.path_parameters:
            known = {p.name: KNOWN[p.name] for p in operation.path_parameters}
            cases |= operation.as_strategy(GenerationMode.NEGATIVE)
            cases |= operation.as_strategy(path_parameters=known)

        @seed(seed_)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases, token=st.sampled_from(TOKENS))
        def ask(case: AnyCase, token: str) -> None:
            self._ask(case, token)

        ask()

    def _ask(self, case: AnyCase, token: str) -> None:
        with client({"right": self._token}.get(token, token)) as session:
            answer = case.call(base_url=self._url, session=session, timeout=TIMEOUT_S)
        self.answers[f"{case.method} {case.operation.path}", answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        if answer.status_code >= 400 and not case.path.startswith(("/readyz", "/healthz")):
            error = answer.json()["error"]
            assert set(error) == {"code", "message"}
            assert error["message"]


@contextmanager
def client(token: str) -> Iterator[requests.Session]:
    """An HTTP client that does not wait for the end of a stream, which never comes."""
    with requests.Session() as session:
        if token:
            session.headers["Authorization"] = f"Bearer {token}"
        session.hooks["response"].append(_leave_streams)
        yield session


def _leave_streams(response: requests.Response, **_: Any) -> None:
    if response.headers.get("content-type", "").startswith(STREAM):
        response._content = next(response.iter_content(64))
        response.close()
