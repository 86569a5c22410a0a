"""Tool ``calculator``: exact arithmetic, bounded in size and time."""

import ast
import operator
import re
import unicodedata
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from agent_worker.tool import Tool, ToolContext, ToolError, tool

MAX_LENGTH = 500
# About 3,900 decimal digits, below the 4,300 that Python converts to text.
MAX_BITS = 13_000
SIGNIFICANT_DIGITS = 15

_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str) -> Fraction:
    """The exact value of + - * / // % ** and parentheses over decimal numbers.

    Accepts ``×÷（）`` and ``^`` for powers. A fractional power is a rounded value. Raises
    ToolError for anything else and for numbers of more than 13,000 bits.
    """
    plain = unicodedata.normalize("NFKC", expression).translate(_SPELLINGS).strip()
    plain = _THOUSANDS.sub("", plain)
    if len(plain) > MAX_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_LENGTH} characters.")
    try:
        return _value(ast.parse(plain, mode="eval").body)
    except ZeroDivisionError as error:
        raise ToolError("division by zero.") from error
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ToolError(
            f"{expression[:100]!r} is not arithmetic: use numbers, + - * / // % ** and ()."
        ) from error


def shown(value: Fraction) -> str:
    """Integers and short decimals in full, the rest rounded to 15 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    digits = Context(prec=SIGNIFICANT_DIGITS)
    rounded = digits.divide(Decimal(value.numerator), Decimal(value.denominator))
    return str(rounded.normalize(digits))


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=bool() | complex()):
            raise ValueError("no number")
        case ast.Constant(value=int() as number):
            return _bounded(Fraction(number))
        case ast.Constant(value=float() as number):
            # By its shortest spelling, so that 0.1 is a tenth. Infinity has none: ValueError.
            return Fraction(repr(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(Fraction(_BINARY[type(op)](_value(left), _value(right))))
    raise ValueError("no arithmetic")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root(base, exponent)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if base not in (0, 1, -1) and size * abs(exponent) > 2 * MAX_BITS:
        raise _too_large()
    if base in (0, 1, -1):
        exponent = min(exponent, 2 + exponent % 2) if exponent > 0 else exponent
    return _bounded(Fraction(base**exponent.numerator))


def _root(base: Fraction, exponent: Fraction) -> Fraction:
    try:
        value = float(base) ** float(exponent)
    except OverflowError as error:
        raise _too_large() from error
    if isinstance(value, complex):
        raise ToolError("the root of a negative number is not real.")
    return Fraction(repr(value))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _too_large()
    return value


def _too_large() -> ToolError:
    return ToolError("the numbers get too large.")


@tool(
    "calculator",
    "Evaluates arithmetic exactly: + - * / // % ** and parentheses.",
    {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "such as 17*23+4"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
    access="read",
    timeout_s=5.0,
)
async def calculator(ctx: ToolContext, input: dict[str, Any]) -> str:
    """Evaluate."""
    return shown(evaluate(input["expression"]))


def tools() -> list[Tool]:
    """What this file adds."""
    return [calculator]
