"""Secrets that the configuration names: in an environment variable or in a file."""

import os
from pathlib import Path

from posthouse.errors import ConfigError


def read_secret(key: str, *, env: str, file: str) -> str:
    """The secret in the environment variable ``env`` or in ``file``; '' when neither is named.

    ``key`` is what the settings ``<key>_env`` and ``<key>_file`` begin with. A secret that is
    named and not there, or empty, is an error. Raises ConfigError.
    """
    if env and file:
        raise ConfigError(f"{key}_env: leave out either it or the key that ends in _file")
    if env:
        text = os.environ.get(env, "").strip()
        if not text:
            raise ConfigError(f"{key}_env: the environment variable {env} is not set or empty")
        return text
    return _in_file(f"{key}_file", Path(file)) if file else ""


def _in_file(key: str, file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{key}: {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}: {file} is not UTF-8") from error
    if not text:
        raise ConfigError(f"{key}: {file} is empty")
    return text
