"""Every text the system itself shows to users, in English and Chinese, from ``texts.yaml``."""

import re
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

Language = Literal["en", "zh"]

_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Text id → language → template."""
    source = files("posthouse").joinpath("texts.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = yaml.safe_load(source)
    return loaded


def text(name: str, language: Language, **values: object) -> str:
    """The text ``name``, filled in. Raises KeyError for a name the catalogue does not have."""
    return catalogue()[name][language].format(**values)


def language_of(sample: str) -> Language:
    """'zh' if the sample has any Chinese character, else 'en'."""
    return "zh" if _CJK.search(sample) else "en"
