"""Plugins are found where they lie, and a broken one is named."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from posthouse import discovery
from posthouse.errors import ConfigError


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an importable package of its own, forgotten in the end."""
    name = f"plugins_{uuid4().hex[:8]}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / name).mkdir()
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def write(folder: Path, **files: str) -> None:
    """Write Python files."""
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)


def test_a_package_offers_every_module_that_has_the_attribute(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, __init__="", one="build = 1", two="build = 2", other="", _hidden="1/0")
    package = importlib.import_module(name)
    assert dict(discovery.in_package(package, "build")) == {"one": 1, "two": 2}


def test_files_and_folders_are_searched(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    write(folder, b="tools = ['b']", a="tools = ['a']", none="", _helper="1/0", __init__="1/0")
    write(tmp_path, single="tools = ['single']")
    found = discovery.in_paths([str(folder), str(tmp_path / "single.py")], "tools")
    assert list(found) == [("a", ["a"]), ("b", ["b"]), ("single", ["single"])]


def test_a_file_may_define_classes_that_look_themselves_up(tmp_path: Path) -> None:
    """Dataclasses do: their module must be importable while it is loaded."""
    shape = "from dataclasses import *\n@dataclass\nclass A:\n    x: 'int'\ntools = [A(1)]"
    write(tmp_path, shape=shape)
    ((_, tools),) = discovery.in_paths([str(tmp_path)], "tools")
    assert tools[0].x == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1/0", "ZeroDivisionError"), ("def", "SyntaxError"), ("import nope_", "nope_")],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, kind: str) -> None:
    write(tmp_path, broken=text)
    with pytest.raises(ConfigError, match=kind) as caught:
        list(discovery.in_paths([str(tmp_path)], "tools"))
    assert str(tmp_path / "broken.py") in caught.value.message
    assert not [module for module in sys.modules if module.endswith("_broken")]


@pytest.mark.parametrize("path", ["missing", "notes.txt"])
def test_what_is_no_plugin_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=path):
        list(discovery.in_paths([str(tmp_path / path)], "tools"))


def test_entry_points_are_loaded_in_order_of_name(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, __init__="", good="thing = 1")
    _install(tmp_path, f"b = {name}.good:thing", f"a = {name}.good:thing")
    assert list(discovery.in_entry_points("posthouse.tests")) == [("a", 1), ("b", 1)]
    assert list(discovery.in_entry_points("posthouse.no_such_group")) == []


def test_a_broken_entry_point_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, __init__="", bad="1/0")
    _install(tmp_path, f"mine = {name}.bad:thing")
    with pytest.raises(ConfigError, match=r"mine of posthouse\.tests: ZeroDivisionError"):
        list(discovery.in_entry_points("posthouse.tests"))


def _install(folder: Path, *entry_points: str) -> None:
    info = folder / "plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[posthouse.tests]", *entry_points]))
