"""The catalogue: the same texts in both languages, and all that the code asks for."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.texts import catalogue, language_of, text

ROOT = Path(__file__).parents[3]
SOURCES = [*ROOT.glob("shared/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")]
NAMES = sorted(catalogue())
LANGUAGES = ("en", "zh")


def placeholders(template: str) -> set[tuple[str, str]]:
    """(field, format) of a template."""
    return {
        (field, spec or "") for _, field, spec, _ in string.Formatter().parse(template) if field
    }


def uses() -> Iterator[tuple[str, set[str] | None]]:
    """(text id, values given) of every ``text(…)`` in the code that names its text outright.

    The values are None where they come from a mapping.
    """
    for file in SOURCES:
        source = file.read_text(encoding="utf-8")
        if "from posthouse.texts import" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "text" and node.args:
                given = [keyword.arg for keyword in node.keywords]
                values = None if None in given else {name for name in given if name}
                for name in _strings(node.args[0]):
                    yield name, values


def _strings(node: ast.expr) -> Iterator[str]:
    branches = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    for branch in branches:
        if isinstance(branch, ast.Constant) and isinstance(branch.value, str):
            yield branch.value


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_say_the_same(name: str) -> None:
    templates = catalogue()[name]
    assert sorted(templates) == sorted(LANGUAGES)
    assert all(template.strip() for template in templates.values())
    assert placeholders(templates["en"]) == placeholders(templates["zh"])


def test_every_text_that_the_code_names_is_there() -> None:
    named = list(uses())
    assert len(named) > 10
    for name, values in named:
        assert name in catalogue(), name
        wanted = {field for field, _ in placeholders(catalogue()[name]["en"])}
        assert values is None or values == wanted, name


def test_a_text_is_filled_in() -> None:
    values = {"role": "agent://main/x", "known": "agent://main"}
    for language in LANGUAGES:
        said = text("unknown_role", language, **values)  # type: ignore[arg-type]
        assert "agent://main/x" in said
        assert "{" not in said
    with pytest.raises(KeyError):
        text("no_such_text", "en")


@pytest.mark.parametrize(
    ("sample", "language"),
    [("", "en"), ("hello", "en"), ("你好", "zh"), ("hi 群", "zh"), ("😀 ，", "en"), ("㐀", "zh")],
)
def test_the_language_of_a_sample(sample: str, language: str) -> None:
    assert language_of(sample) == language
