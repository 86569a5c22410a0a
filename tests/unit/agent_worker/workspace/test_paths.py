"""Paths as models write them: inside, or a ToolError; nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_worker.tool import ToolError
from agent_worker.workspace.paths import MAX_DEPTH, MAX_NAME_BYTES, can_be_named, parse

ROOT = Path("/srv/workspaces/im.cli.local")

INSIDE = {
    "notes.md": ("notes.md",),
    "a/b/c.txt": ("a", "b", "c.txt"),
    "./a": ("a",),
    "a//b": ("a", "b"),
    "a/./b/": ("a", "b"),
    "a/../b": ("b",),
    "a/b/../../c": ("c",),
    "": (),
    ".": (),
    "a/..": (),
    "...": ("...",),
    "..a": ("..a",),
    "a..": ("a..",),
    ".hidden": (".hidden",),
    "~/x": ("~", "x"),
    "$HOME/x": ("$HOME", "x"),
    "%2e%2e/x": ("%2e%2e", "x"),
    "C:/x": ("C:", "x"),
    "file:///etc/passwd": ("file:", "etc", "passwd"),
    "报告/第一章.md": ("报告", "第一章.md"),
    " a b ": (" a b ",),
    # Look-alikes of dot and slash are characters as any other.
    "．．/x": ("．．", "x"),
    "‥/x": ("‥", "x"),
    "a∕b": ("a∕b",),
    "e\u0301": ("e\u0301",),
    str(ROOT): (),
    f"{ROOT}/": (),
    f"{ROOT}/a/b": ("a", "b"),
    f"{ROOT}/a/../b": ("b",),
    "n" * MAX_NAME_BYTES: ("n" * MAX_NAME_BYTES,),
    "/".join("d" * MAX_DEPTH): tuple("d" * MAX_DEPTH),
}

ESCAPES = [
    "..",
    "../",
    "../x",
    "../../etc/passwd",
    "./../x",
    "a/../../x",
    "a/b/../../../x",
    "a/../..",
    "..//x",
    "../im.cli.local/x",
    "../im.cli.localx",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/dev/tty",
    "/srv/workspaces",
    "/srv/workspaces/im.cli.other/x",
    f"{ROOT}x/y",
    f"{ROOT}/..",
    f"{ROOT}/../im.cli.other/x",
    f"{ROOT}/a/../../x",
    f"/{ROOT}/x",
    f"/../{ROOT}/x",
    f"/./{str(ROOT)[1:]}/x",
]

BAD_NAMES = {
    "a\0b": "control characters",
    "\0": "control characters",
    "../\0": "control characters",
    "a\nb": "control characters",
    "a\x1b[2Jb": "control characters",
    "a\x7f": "control characters",
    "a\x85b": "control characters",
    "\ud800": "no valid text",
    "a\udc80b": "no valid text",
    "..\\x": "separate folders with /",
    "a\\..\\..\\x": "separate folders with /",
    "C:\\Windows": "separate folders with /",
    "\\\\server\\share": "separate folders with /",
    "n" * (MAX_NAME_BYTES + 1): "shorten it",
    "长" * 86: "shorten it",
    "/".join("d" * (MAX_DEPTH + 1)): "folders deep",
    "a/" * 100_000: "folders deep",
}


@pytest.mark.parametrize(("path", "parts"), INSIDE.items())
def test_inside(path: str, parts: tuple[str, ...]) -> None:
    assert parse(path, ROOT) == parts


@pytest.mark.parametrize("path", ESCAPES)
def test_what_leads_out_is_refused_and_the_model_learns_what_to_do(path: str) -> None:
    with pytest.raises(ToolError, match=r"outside of the working directory.*Use a path inside"):
        parse(path, ROOT)


@pytest.mark.parametrize(("path", "why"), BAD_NAMES.items())
def test_bad_names_are_refused(path: str, why: str) -> None:
    with pytest.raises(ToolError, match=why) as refused:
        parse(path, ROOT)
    assert len(refused.value.message) < 400


pieces = st.sampled_from(["..", ".", "", "a", "~", "\\", "\0", "．．", str(ROOT), "/", "etc"])
paths = st.one_of(
    st.text(alphabet=st.characters(codec=None), max_size=60),
    st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=12).map("/".join),
)


@given(paths)
@example("/" * 5000)
@example(str(ROOT) + "/" * 5000 + "..")
def test_any_text_is_a_place_inside_or_a_tool_error(path: str) -> None:
    try:
        parts = parse(path, ROOT)
    except ToolError:
        return
    assert os.path.normpath(ROOT.joinpath(*parts)) == str(ROOT.joinpath(*parts))
    assert all(part not in ("", ".", "..") and can_be_named(part) for part in parts)
    assert not any("/" in part or "\0" in part for part in parts)
    assert parse("/".join(parts), ROOT) == parts
    assert parse(str(ROOT.joinpath(*parts)), ROOT) == parts
