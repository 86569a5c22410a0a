"""Role files: both forms, every mistake by file and line, and files that change."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.roles import RoleBook, parse
from posthouse.errors import ConfigError
from tests.unit.agent_worker.fakes import Recorder

FLAT = """\
---
name: translator
description: 翻译
tools: [Fetch, WebSearch]
memory: true
spawn_agent: true
max_iterations: 7
model: mine/large
tier: premium
input_types: [text]
tags: {team: docs}
---

Translate what you get.
"""
NESTED = """\
---
description: Talks.
tools: Read, Grep
capabilities:
  memory: true
  send_message: true
---
Talk."""


def test_flat_keys() -> None:
    role = parse(FLAT, "agents/other.md")

    assert (role.name, role.description, role.prompt) == (
        "translator",
        "翻译",
        "Translate what you get.",
    )
    assert (role.memory, role.send_message, role.spawn_agent) == (True, False, True)
    assert (role.max_iterations, role.model, role.tier) == (7, "mine/large", "premium")
    assert (role.input_types, role.tags) == (("text",), {"team": "docs"})


def test_nested_capabilities_and_a_list_with_commas() -> None:
    role = parse(NESTED, "agents/talker.md")

    assert role.name == "talker"
    assert role.tools == ("Read", "Grep")
    assert (role.memory, role.send_message, role.spawn_agent) == (True, True, False)


@pytest.mark.parametrize("text", ["Just a prompt.", "\ufeff---\r\n---\r\nJust a prompt.\r\n"])
def test_all_but_the_prompt_has_a_default(text: str) -> None:
    role = parse(text, "x/plain.md")

    assert (role.name, role.prompt, role.tools) == ("plain", "Just a prompt.", ())


@pytest.mark.parametrize(
    ("named", "tool", "allowed"),
    [
        ((), "anything", True),
        (("WebSearch",), "web_search", True),
        (("web_search",), "web_search", True),
        (("SubAgent", "Shell"), "sub_agent", True),
        (("Read",), "write", False),
        (("Read",), "read_result", False),
        (("git__read",), "git__read", True),
        (("git__read",), "git__write", False),
        (("git__*",), "git__read", True),
        (("git__*",), "github__read", False),
        # Another server's: only spelling would tell them apart.
        (("git__hubread",), "github__read", False),
        (("githubread",), "github__read", False),
        (("Git__read",), "git__read", False),
    ],
)
def test_tools_are_matched_whatever_their_spelling(
    named: tuple[str, ...], tool: str, allowed: bool
) -> None:
    role = parse("x", "x.md").model_copy(update={"tools": named})

    assert role.allows(Recorder().tool(tool)) is allowed


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("---\nname: x\n", "bad.md:1", "no end"),
        ("---\nname: [\n---\nx", "bad.md:", "YAML"),
        ("---\n- a\n---\nx", "bad.md:2", "keys and values"),
        ("---\ndescription: d\ntemprature: 1\n---\nx", "bad.md:3", "temprature: there is no such"),
        ("---\n\nmax_iterations: many\n---\nx", "bad.md:3", "max_iterations"),
        ("---\nmax_iterations: -1\n---\nx", "bad.md:2", "max_iterations"),
        ("---\ntier: huge\n---\nx", "bad.md:2", "tier"),
        ("---\ncapabilities:\n  fly: true\n---\nx", "bad.md:3", "fly"),
        ("---\nmemory: true\ncapabilities: all\n---\nx", "bad.md:3", "keys and values"),
        ("---\ndescription: d\nname: a b\n---\nx", "bad.md:3", "'a b'"),
        ("---\nname: x\n---\n  \n", "bad.md:5", "prompt"),
        ("", "bad.md:1", "prompt"),
    ],
)
def test_a_mistake_names_file_and_line(text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "bad.md")

    assert caught.value.message.startswith(place)
    assert says in caught.value.message


@given(st.text(), st.booleans())
def test_any_text_is_a_role_or_a_clear_error(text: str, fenced: bool) -> None:
    outcome = "any.md"
    try:
        assert parse(f"---\n{text}\n---\nx" if fenced else text, "any.md").prompt
    except ConfigError as error:
        outcome = error.message

    assert outcome.startswith("any.md")


def write(folder: Path, name: str, text: str) -> None:
    """A file whose change is seen even within one tick of the clock."""
    file = folder / name
    number = file.stat().st_mtime_ns + 1_000_000 if file.exists() else 1_000_000_000
    file.write_text(text)
    os.utime(file, ns=(number, number))


def test_three_roles_are_shipped(tmp_path: Path) -> None:
    roles = RoleBook(tmp_path / "nowhere").current()

    assert roles.names == "code-reviewer, main, researcher"
    assert roles.main.spawn_agent
    for role in roles.by_name.values():
        assert role.description
    assert not roles.by_name["researcher"].allows(Recorder().tool("write", "write"))


def test_own_roles_are_added_and_take_the_place_of_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, "poet.md", "Rhyme.")
    write(tmp_path, "main.md", "Be brief.")
    write(tmp_path, "README.md", "no role")

    roles = RoleBook(tmp_path).current()

    assert roles.names == "code-reviewer, main, poet, researcher"
    assert roles.main.prompt == "Be brief."


def test_changes_count_from_the_next_turn_on(tmp_path: Path) -> None:
    write(tmp_path, "poet.md", "Rhyme.")
    book = RoleBook(tmp_path)
    before = book.current()
    assert book.current() is before

    write(tmp_path, "poet.md", "押韵。")
    write(tmp_path, "other.md", "Other.")
    roles = book.current()
    assert (roles.by_name["poet"].prompt, "other" in roles.by_name) == ("押韵。", True)
    assert before.by_name["poet"].prompt == "Rhyme."

    (tmp_path / "other.md").unlink()
    assert "other" not in book.current().by_name


def test_a_file_that_breaks_later_leaves_the_roles_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, "poet.md", "Rhyme.")
    book = RoleBook(tmp_path)

    write(tmp_path, "poet.md", "---\nbroken")
    assert book.current().by_name["poet"].prompt == "Rhyme."
    write(tmp_path, "poet.md", "Mended.")
    assert book.current().by_name["poet"].prompt == "Mended."


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"bad.md": "---\nx: 1\n---\ny"}, "bad.md:2"),
        ({"a.md": "---\nname: x\n---\na", "b.md": "---\nname: x\n---\nb"}, "another role 'x'"),
    ],
)
def test_a_bad_file_is_an_error_at_the_start(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)

    with pytest.raises(ConfigError, match=says):
        RoleBook(tmp_path)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match=r"bad\.md"):
        RoleBook(tmp_path)
