"""The page docs/rpc.md, made from the code: ``python -m tests.contract.rpc_reference docs/rpc.md``.

Subjects and requests come from the services' own ``RpcServer``, results from ``RESULTS``, errors
from the SQL functions that the handlers call, meanings from docstrings and ``rpc_fields.yaml``.
"""

import datetime
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from memory.adapters import postgres
from memory.handlers import build_server as memory_server
from memory.ports import Database
from memory.settings import POOL_PATIENCE_S
from posthouse import calls, errors, turns
from posthouse.address import Address
from posthouse.rpc import Handler, RpcServer
from posthouse.settings import MemorySettings
from scheduler.handlers import Handlers as SchedulerHandlers
from scheduler.handlers import ListResult, NotSupported
from scheduler.handlers import build_server as scheduler_server
from scheduler.ports import Schedules

FIELDS = Path(__file__).with_name("rpc_fields.yaml")
Model = type[BaseModel]

# Handlers of the memory service answer the JSON of Postgres, so their code names no result.
RESULTS: dict[str, Model | None] = {
    "memory.turn.open": turns.OpenResult,
    "memory.turn.admit": turns.AdmitResult,
    "memory.turn.begin": turns.BeginResult,
    "memory.turn.record": turns.Ack,
    "memory.turn.emit": turns.EmitResult,
    "memory.turn.notify": turns.EmitResult,
    "memory.turn.commit": turns.CommitResult,
    "memory.turn.release": None,
    "memory.turn.control": turns.ControlResult,
    "memory.turn.heartbeat": turns.HeartbeatResult,
    "memory.turn.read": turns.ReadResult,
    "memory.call.open": calls.CallOpenResult,
    "memory.call.record": None,
    "memory.call.finish": None,
    "memory.call.cancel": None,
    "memory.call.release": None,
    "memory.history.recall": turns.RecallResult,
    "memory.delivery.missing": turns.MissingResult,
    "scheduler.list": ListResult,
}

# Refusals of the SQL functions, as the memory service's adapter translates them.
REFUSALS: dict[str, type[errors.PosthouseError]] = {
    postgres.FENCED: errors.Fenced,
    postgres.BAD_REQUEST: errors.BadRequest,
    postgres.BAD_MESSAGE: errors.BadMessage,
}

HEAD = """\
# RPC reference

Made from the code by `make docs`; do not edit it by hand. Words: [glossary](glossary.md).

Services ask each other by NATS request/reply. The request is a JSON object. So is the reply:

```json
{"ok": true, "result": {}}
{"ok": false, "error": {"code": "fenced", "message": "…", "retryable": false, "details": {}}}
```

Unknown fields of a request are ignored. Fields without a value are left out. Every request may be
repeated as it is: nothing is done twice. So a caller that gets no answer asks again.

All replicas of a service share one queue group, so one of them answers each request.

## Errors of every call

| Code | Try again | When |
|--|--|--|
"""

# Errors that any call of the memory service may end with.
COMMON = [
    (errors.BadRequest, "the request does not fit its model"),
    (errors.BadMessage, "Postgres cannot store a text of the request"),
    (errors.Busy, f"no free connection to Postgres within {POOL_PATIENCE_S:g} s"),
    (errors.Unavailable, "Postgres or NATS does not answer"),
    (errors.TransientError, "Postgres gave up a statement: lock or time limit"),
    (errors.PosthouseError, "a fault of ours; see the log of the service"),
]


def page() -> str:
    """The whole page."""
    memory, scheduler = _servers()
    parts = [HEAD + "".join(map(_common_error, COMMON)), "Further errors stand with each call.\n"]
    parts += _section("The memory service", memory)
    parts += _section("The scheduler", scheduler)
    parts.append(_not_served(scheduler))
    parts += _types()
    return "\n".join(parts)


def served_subjects() -> set[str]:
    """Every subject that answers with a result."""
    return {subject for server in _servers() for subject, _, _ in _served(server)}


def unused_meanings() -> set[str]:
    """Entries of the meanings that no field uses."""
    used = {
        _meaning_key(model, _wire_name(name, field))
        for model in {*_tops(), *_nested(_tops())}
        for name, field in model.model_fields.items()
    }
    return set(_meanings()) - used


def _servers() -> tuple[RpcServer, RpcServer]:
    memory = memory_server(cast(Database, None), MemorySettings())
    return memory, scheduler_server(cast(Schedules, None))


def _tops() -> list[Model]:
    """Requests and results."""
    requests = [model for server in _servers() for _, model, _ in _served(server)]
    return requests + [result for result in RESULTS.values() if result is not None]


def _served(server: RpcServer) -> list[tuple[str, Model, Handler]]:
    return [
        (subject, model, handler)
        for subject, (model, handler) in server.methods.items()
        if not _is_refused(handler)
    ]


def _is_refused(handler: Handler) -> bool:
    return getattr(handler, "__func__", None) is SchedulerHandlers.refuse


def _common_error(row: tuple[type[errors.PosthouseError], str]) -> str:
    error, when = row
    return f"| `{error.code}` | {'yes' if error.retryable else 'no'} | {when} |\n"


def _section(title: str, server: RpcServer) -> Iterator[str]:
    yield f"## {title}\n"
    for subject, model, handler in _served(server):
        yield f"### `{subject}`\n"
        yield f"{_docstring(model)}\n"
        yield "**Request**\n"
        yield _table(model)
        yield _result(subject)
        if codes := _refusals(handler):
            yield f"**Errors**: {', '.join(codes)}\n"


def _result(subject: str) -> str:
    model = RESULTS[subject]
    if model is None:
        return "**Result**: nothing (`{}`)\n"
    return f"**Result**: {_docstring(model)}\n\n{_table(model)}"


def _not_served(server: RpcServer) -> str:
    subjects = [f"`{s}`" for s, (_, handler) in server.methods.items() if _is_refused(handler)]
    return f"Not there yet, and answered with `{NotSupported.code}`: {', '.join(subjects)}.\n"


def _types() -> Iterator[str]:
    yield "## Types\n"
    for model in sorted(_nested(_tops()), key=lambda m: m.__name__):
        yield f"### {model.__name__}\n"
        yield f"{_docstring(model)}\n"
        yield _table(model)


def _nested(tops: list[Model]) -> set[Model]:
    """The models that stand in fields of these, at any depth."""
    found: set[Model] = set()
    waiting = list(tops)
    while waiting:
        for field in waiting.pop().model_fields.values():
            new = set(_models_in(field.annotation)) - found
            found |= new
            waiting += new
    return found


def _models_in(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _docstring(model: Model) -> str:
    """As one paragraph, without the numbers of rules."""
    text = inspect.cleandoc(model.__doc__ or "").replace("``", "`")
    return re.sub(r"\s+", " ", re.sub(r"\s*\(R\d+[^)]*\)", "", text))


def _table(model: Model) -> str:
    if not model.model_fields:
        return "No fields.\n"
    rows = ["| Field | Type | Default | Meaning |", "|--|--|--|--|"]
    for name, field in model.model_fields.items():
        wire = _wire_name(name, field)
        kind = _type(field.annotation) + _bounds(field)
        meaning = field.description or _meaning(model, wire)
        cells = (f"`{wire}`", kind, _default(field), meaning)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _wire_name(name: str, field: FieldInfo) -> str:
    return field.alias or name


@cache
def _meanings() -> dict[str, str]:
    loaded: dict[str, str] = yaml.safe_load(FIELDS.read_text(encoding="utf-8"))
    return loaded


def _meaning_key(model: Model, name: str) -> str:
    own = f"{model.__name__}.{name}"
    return own if own in _meanings() else name


def _meaning(model: Model, name: str) -> str:
    key = _meaning_key(model, name)
    if key not in _meanings():
        raise LookupError(f"say in tests/contract/{FIELDS.name} what {model.__name__}.{name} means")
    return _meanings()[key]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    match value:
        case None:
            return "none"
        case datetime.datetime():
            return "now"
        case Address():
            return f"`{value}`"
        case BaseModel():
            return "empty"
        case tuple():
            return f"`{list(value)}`"
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f"`{value!r}`"
    return f"`{value}`"


_SIMPLE: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    Any: "any",
    Address: "address",
    datetime.datetime: "time",
}


def _type(annotation: Any) -> str:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return _type(next(a for a in arguments if a is not types.NoneType))
    if origin in (list, tuple):
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        what = _type(arguments[1])
        return "object" if what == "any" else f"object of {what}"
    raise TypeError(f"no words for {annotation}")


def _bounds(field: FieldInfo) -> str:
    lowest = [str(m.ge) for m in field.metadata if isinstance(m, Ge)]
    highest = [str(m.le) for m in field.metadata if isinstance(m, Le)]
    words = [f"from {n}" for n in lowest] + [f"to {n}" for n in highest]
    return f" {' '.join(words)}" if words else ""


def _refusals(handler: Handler) -> list[str]:
    """Codes of the errors that the handler's SQL function, or one it calls, raises by itself."""
    source = inspect.getsource(handler)
    if "self._db.beat" in source:
        function = "heartbeat"
    elif found := re.search(r'"turn_v1\.(\w+)"', source):
        function = found[1]
    else:
        return []
    states = sorted(_states_of(function))
    return [f"`{REFUSALS[state].code}`" for state in states]


def _states_of(function: str) -> set[str]:
    """SQLSTATEs that a function may raise, with all that it calls."""
    bodies, seen, waiting = _sql_functions(), set[str](), [function]
    states: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        states.update(re.findall(r"fail\('(PH\d+)'", bodies[name]))
        waiting += set(re.findall(r"\b(\w+)\s*\(", bodies[name])) & set(bodies)
    return states


@cache
def _sql_functions() -> dict[str, str]:
    """Name → body of the functions of the turn API, without comments."""
    folder = files("memory").joinpath("sql", "turn_v1")
    parts = sorted(folder.iterdir(), key=lambda part: part.name)
    source = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    source = re.sub(r"--[^\n]*", "", source)
    found = re.findall(r"create function (\w+)\(.*?as \$\$(.*?)\$\$", source, re.DOTALL)
    bodies: dict[str, str] = {}
    for name, body in found:
        bodies[name] = bodies.get(name, "") + body
    return bodies


def main() -> None:
    """Write the page to the file that is named."""
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
