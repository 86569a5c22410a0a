"""Checks the arguments of calls against the JSON schemas of tools.

A flat schema is checked by hand first: 1 µs instead of 40 for a call that fits, which is nearly
every call. What that check does not accept goes to jsonschema, which has the last word.
"""

from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

_SHOWN_PROBLEMS = 5
_SHOWN_CHARACTERS = 300
_NOTES = frozenset({"title", "description", "default", "examples", "$schema"})
_OBJECT_KEYS = _NOTES | {"type", "properties", "required", "additionalProperties"}
_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}

Check = Callable[[dict[str, Any]], bool]


class ArgumentsCheck:
    """The check for one tool's arguments. Raises ValueError for a bad schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(error.message) from error
        self._validator = Draft202012Validator(schema)
        self._surely_fits = quick_check(schema)

    def problems(self, input: dict[str, Any]) -> list[str]:
        """What is wrong, in words for the model; empty if the arguments fit."""
        if self._surely_fits(input):
            return []
        errors = self._validator.iter_errors(input)
        return [
            f"{error.json_path.removeprefix('$.')}: {error.message[:_SHOWN_CHARACTERS]}"
            for error, _ in zip(errors, range(_SHOWN_PROBLEMS), strict=False)
        ]


def quick_check(schema: dict[str, Any]) -> Check:
    """A check that accepts only what fits; for schemas that are not flat it accepts nothing."""
    properties: dict[str, Any] = schema.get("properties") or {}
    flat = (
        schema.get("type") == "object"
        and schema.keys() <= _OBJECT_KEYS
        and all(_is_plain(sub) for sub in properties.values())
    )
    if not flat:
        return lambda input: False
    types = {name: _PLAIN_TYPES[sub["type"]] for name, sub in properties.items()}
    required = schema.get("required") or []

    def check(input: dict[str, Any]) -> bool:
        return all(name in input for name in required) and all(
            # By exact type: True is an int to Python, and no integer to JSON.
            type(value) in types.get(name, ())
            for name, value in input.items()
        )

    return check


def _is_plain(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.keys() <= _NOTES | {"type"}
        and isinstance(schema.get("type"), str)
        and schema["type"] in _PLAIN_TYPES
    )
