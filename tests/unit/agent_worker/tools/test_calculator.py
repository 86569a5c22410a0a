"""The calculator against Python's own exact arithmetic."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.tool import ToolError
from agent_worker.tools.calculator import evaluate, shown

expressions = st.recursive(
    st.integers(0, 10**6).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-({text})"),
        st.tuples(inner.map(lambda t: f"({t})"), st.integers(-3, 4)).map(
            lambda pair: f"{pair[0]} ** {pair[1]}"
        ),
    ),
    max_leaves=12,
)


def by_python(expression: str) -> Fraction | None:
    """Python's value, each number a fraction; None for a division by zero."""
    exact = re.sub(r"(\d+)", r"Fraction(\1)", expression)
    try:
        return Fraction(eval(exact, {"Fraction": Fraction}))
    except ZeroDivisionError:
        return None


def by_calculator(expression: str) -> Fraction | str:
    """The calculator's value, or why it refuses."""
    try:
        return evaluate(expression)
    except ToolError as error:
        return error.message


@given(expressions)
def test_agrees_with_python(expression: str) -> None:
    expected, found = by_python(expression), by_calculator(expression)

    if expected is None:
        assert isinstance(found, str)
    elif isinstance(found, str):
        # Only size may be refused, and only if something really is large.
        assert "too large" in found or "longer than" in found
        assert len(expression) > 500 or "**" in expression
    else:
        assert found == expected


limited = st.integers(-(10**100), 10**100)


@given(limited, limited)
def test_integers_are_exact(a: int, b: int) -> None:
    assert shown(evaluate(f"({a}) * ({b}) + ({a})")) == str(a * b + a)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17*23+4", "395"),
        ("0.1+0.2", "0.3"),
        ("1/3", "0.333333333333333"),
        ("10/4", "2.5"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("-7 % 3", "2"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2**0.5", "1.4142135623731"),
        ("（12＋30）×2÷4", "21"),
        ("１２ － ２", "10"),
        ("3 − 1", "2"),
        ("1,234,567 + 1", "1234568"),
        ("1_000+1", "1001"),
        ("2**1000", str(2**1000)),
        ("1**99999999999", "1"),
        ("(-1)**99999999999", "-1"),
        ("(-1)**99999999998", "1"),
        ("0**5", "0"),
        ("0**0", "1"),
        ("1e3", "1000"),
    ],
)
def test_examples(expression: str, result: str) -> None:
    assert shown(evaluate(expression)) == result


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "not arithmetic"),
        ("two", "not arithmetic"),
        ("__import__('os')", "not arithmetic"),
        ("(1).real", "not arithmetic"),
        ("[1,2][0]", "not arithmetic"),
        ("True+1", "not arithmetic"),
        ("2j", "not arithmetic"),
        ("'a'*3", "not arithmetic"),
        ("1 if 1 else 2", "not arithmetic"),
        ("1 << 3", "not arithmetic"),
        ("1+", "not arithmetic"),
        ("1e999", "not arithmetic"),
        ("(" * 245 + "1" + ")" * 245, "not arithmetic"),
        ("1/0", "division by zero"),
        ("0**-1", "division by zero"),
        ("5%0", "division by zero"),
        ("9**9**9**9", "too large"),
        ("10**5000", "too large"),
        ("2**100000000000", "too large"),
        ("0.5**99999", "too large"),
        ("1e300**1.5", "too large"),
        ("(-8)**0.5", "not real"),
        ("+".join(["1"] * 300), "longer than 500"),
        ("9" * 499 + "*" + "9" * 10, "longer than 500"),
    ],
)
def test_refuses(expression: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        evaluate(expression)
