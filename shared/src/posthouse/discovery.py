"""Finds channels, tools and providers: one file each, or a third party's entry point.

A module counts when it has the asked-for attribute (as ``build`` or ``tools``). So a new
channel, tool or provider is one new file.
"""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from posthouse.errors import ConfigError


def in_package(package: ModuleType, attribute: str) -> Iterator[tuple[str, Any]]:
    """(module name, attribute) of every public module of a package that has the attribute."""
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, attribute):
            yield info.name, getattr(module, attribute)


def in_entry_points(group: str) -> Iterator[tuple[str, Any]]:
    """(name, loaded object) of every installed entry point of a group. Raises ConfigError."""
    for entry in sorted(entry_points(group=group), key=lambda e: e.name):
        try:
            loaded = entry.load()
        except Exception as error:
            raise _broken(f"entry point {entry.name} of {group}", error) from error
        yield entry.name, loaded


def in_paths(paths: list[str], attribute: str) -> Iterator[tuple[str, Any]]:
    """(module name, attribute) of ``*.py`` files or folders of them. Raises ConfigError.

    In a folder, files that start with an underscore are helpers of the others.
    """
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"{path} does not exist", path=str(path))
        files = sorted(path.glob("[!_]*.py")) if path.is_dir() else [path]
        for file in files:
            module = _load(file)
            if hasattr(module, attribute):
                yield file.stem, getattr(module, attribute)


def _load(file: Path) -> ModuleType:
    name = f"posthouse_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file", path=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(str(file), error) from error
    return module


def _broken(plugin: str, error: Exception) -> ConfigError:
    return ConfigError(f"{plugin}: {type(error).__name__}: {error}", plugin=plugin)
