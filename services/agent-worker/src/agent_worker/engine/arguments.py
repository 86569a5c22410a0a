"""Reads the arguments that a model wrote, forgiving what is certain to be meant."""

import ast
import re
from collections.abc import Callable
from typing import Any

import orjson

from agent_worker.tool import ToolError

_FENCE = re.compile(r"\s*```\w*\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_SHOWN = 200


def parse(raw: str) -> dict[str, Any]:
    """The arguments as a dict. Raises ToolError, for the model to read, if they are no object.

    Open strings and brackets are never closed: a cut-off call must not run.
    """
    if not raw.strip():
        return {}
    fence = _FENCE.fullmatch(raw)
    bare = fence[1] if fence else raw
    for read in _READINGS:
        try:
            value = read(bare)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if not isinstance(value, dict):
            raise ToolError(f"the arguments must be one JSON object, not {type(value).__name__}.")
        return value
    raise ToolError(f"the arguments are not valid JSON: {raw[:_SHOWN]} Send one JSON object.")


def _python_literal(text: str) -> Any:
    """Python's way to write it; through JSON, so that no set or tuple gets in."""
    return orjson.loads(orjson.dumps(ast.literal_eval(text.strip())))


def _without_trailing_commas(text: str) -> Any:
    return orjson.loads(_TRAILING_COMMA.sub(r"\1", text))


# The last one may touch a string, so it comes after the one that cannot.
_READINGS: tuple[Callable[[str], Any], ...] = (
    orjson.loads,
    _python_literal,
    _without_trailing_commas,
)
