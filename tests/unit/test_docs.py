"""The documents say what is there: links, commands, snippets, the example configuration."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from agent_worker.engine import RunConfig, run
from agent_worker.llm.routing import build_client
from agent_worker.registry import load_tools
from posthouse.cli.main import app
from posthouse.settings import load

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CONFIG = ROOT / "posthouse.yaml"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
# Papers that the design came from; FAULTS alone is also the name of a list in tests.
_PAPER = re.compile(r"\b(?:PROTOCOL|DESIGN|FACTS|STYLE|RELIABILITY|FAULTS (?:of|section))\b")


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [body for name, body in _BLOCK.findall(page.read_text("utf-8")) if name == language]


def links(page: Path) -> list[tuple[str, str]]:
    """Text and target of the links of a page that stay in this repository."""
    prose = _BLOCK.sub("", page.read_text("utf-8"))
    return [(text, target) for text, target in _LINK.findall(prose) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page are linked."""
    prose = _BLOCK.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """Every `make …` and `posthouse …` of a page, in words."""
    text = page.read_text("utf-8")
    lines = [line for body in blocks(page, "sh") for line in body.splitlines()]
    for line in [*lines, *_SPAN.findall(_BLOCK.sub("", text))]:
        found = re.search(r"(?:^|\s|/)(make|posthouse) [a-z].*", line)
        if found and not line.startswith("nats "):
            yield shlex.split(found[0].strip(" /"), comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    for span in _SPAN.findall(_BLOCK.sub("", page.read_text("utf-8"))):
        if re.fullmatch(r"(shared|services|tests|docs)/[\w./-]*", span):
            assert (ROOT / span).exists(), span


def test_named_tests_exist() -> None:
    named = [(text, target) for text, target in links(README) if text.startswith("test_")]
    assert named
    for name, target in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / target).read_text("utf-8"), re.M), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for program, name, *arguments in commands(page):
        if program == "make":
            assert name in targets, f"make {name}"
            passed_on = [a.removeprefix("ARGS=") for a in arguments if a.startswith("ARGS=")]
            arguments = shlex.split(" ".join(passed_on))
        if program == "posthouse" or name == "up":
            chosen = {argument for argument in arguments if argument.startswith("--")}
            assert chosen <= options(name), f"{program} {name}"


def options(command: str) -> set[str]:
    """The options of a `posthouse` command, which must exist."""
    group: Any = typer.main.get_command(app)
    assert command in group.commands, f"posthouse {command}"
    return {option for parameter in group.commands[command].params for option in parameter.opts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_and_json_can_be_read(page: Path) -> None:
    for source in blocks(page, "python"):
        compile(source, page.name, "exec")
    for source in blocks(page, "json"):
        for line in source.splitlines():
            json.loads(line)


async def test_the_tool_of_the_readme_works(tmp_path: Path) -> None:
    (source,) = [body for body in blocks(README, "python") if "def tools()" in body]
    file, config = tmp_path / "dice.py", tmp_path / "posthouse.yaml"
    file.write_text(source, encoding="utf-8")
    config.write_text(f"tools_path: [{json.dumps(str(file))}]\n", encoding="utf-8")
    settings = load(config)
    model = build_client(settings)
    messages = [{"role": "user", "content": "dice 2d6"}]
    answer = await run(
        RunConfig(llm_client=model, model="", tools=load_tools(settings), messages=messages)
    )
    await model.aclose()
    assert re.fullmatch(r"dice → \d+ \([1-6] \+ [1-6]\)", answer.content)


async def test_the_configuration_of_the_readme_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    (source,) = blocks(README, "yaml")
    file = tmp_path / "posthouse.yaml"
    file.write_text(source, encoding="utf-8")
    settings = load(file)
    assert settings.tiers.standard == ("mine/my-model",)
    await build_client(settings).aclose()


def test_the_example_configuration_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(CONFIG) == load()


def test_every_commented_setting_of_the_example_is_one(tmp_path: Path) -> None:
    # "#key: value" is a setting, "# text" is a comment.
    bare = re.sub(r"^( *)#(?=[^\s#])", r"\1", CONFIG.read_text("utf-8"), flags=re.MULTILINE)
    file = tmp_path / "posthouse.yaml"
    file.write_text(bare, encoding="utf-8")
    settings = load(file)
    assert settings.providers["mine"].kind == "openai"
    assert settings.slots == 16


def test_rules_that_the_code_names_are_explained() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    explained = set(re.findall(r"^\| (R\d+) \|", page, re.MULTILINE))
    sources = [f for f in ROOT.glob("s*/**/*") if f.suffix in (".py", ".sql")]
    assert sources
    for source in sources:
        named = set(re.findall(r"\bR\d{1,2}\b", source.read_text("utf-8")))
        assert named <= explained, f"{source}: add {named - explained} to docs/architecture.md"


def test_no_file_cites_papers_from_elsewhere() -> None:
    sources = [
        source
        for folder in (ROOT / "shared", ROOT / "services", ROOT / "tests", ROOT / "docs")
        for source in folder.rglob("*")
        if source.suffix in (".py", ".sql", ".yaml", ".toml", ".md") and source != Path(__file__)
    ]
    sources += [*ROOT.glob("*.md"), *ROOT.glob("*.yaml"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    assert README in sources
    for source in sources:
        found = _PAPER.search(source.read_text("utf-8"))
        assert found is None, f"{source}: {found and found[0]} is no part of this project"


def test_every_word_has_its_chinese() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", _glossary(), re.MULTILINE)
    words = [(word, chinese) for word, chinese, _ in rows if word not in ("Word", "--")]
    assert len(words) > 50
    for word, chinese in words:
        assert re.search("[\u4e00-\u9fff]", chinese), word
    names = [word for word, _ in words]
    assert len(names) == len(set(names))


def _glossary() -> str:
    return (ROOT / "docs" / "glossary.md").read_text("utf-8")
