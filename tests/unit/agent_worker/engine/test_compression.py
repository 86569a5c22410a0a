"""Prompts that do not fit: what stays, what goes, and that nothing is ever torn apart (G7)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.engine import run
from agent_worker.engine.compression import (
    FEW,
    KEPT_GROUPS,
    LEFT_OUT,
    CompressConfig,
    CompressFunc,
    Compressor,
    tokens,
    truncated,
)
from agent_worker.engine.pairs import paired
from agent_worker.llm.client import Message
from tests.unit.agent_worker.fakes import Recorder, ScriptedModel, calls, config, says

SYSTEM: Message = {"role": "system", "content": "Be brief."}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "description": "x " * 200}}
]
TEXTS = st.sampled_from(["", "hi", "好" * 50, "word " * 300, "长文" * 3000])


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A system message and exchanges, the last of them perhaps under way."""
    out, number = [SYSTEM], 0
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 2))):
            out.append({"role": "user", "content": draw(TEXTS) or "?"})
        for _ in range(draw(st.integers(0, 5))):
            ids = [f"c{number + offset}" for offset in range(draw(st.integers(1, 2)))]
            number += len(ids)
            named = [
                {"id": id_, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for id_ in ids
            ]
            out.append({"role": "assistant", "content": draw(TEXTS), "tool_calls": named})
            out += [{"role": "tool", "tool_call_id": i, "content": draw(TEXTS)} for i in ids]
        if draw(st.booleans()):
            out.append({"role": "assistant", "content": draw(TEXTS) or "bye"})
    return out


@given(histories(), st.integers(0, 20_000))
def test_whatever_is_cut_the_prompt_stays_one(history: list[Message], limit: int) -> None:
    made = truncated(history, limit)

    assert paired(made) == made
    assert [m for m in made if m["role"] == "system"] == [SYSTEM]
    assert made[0] == SYSTEM
    assert tokens(made) <= tokens(history)
    newest = [m for m in history if m["role"] == "user"][-1]["content"]
    kept = [m for m in made if m["role"] == "user"][-1]["content"]
    assert kept[:100] == newest[:100]


@given(histories())
def test_what_fits_is_left_alone(history: list[Message]) -> None:
    assert truncated(history, tokens(history)) == history


@given(histories(), st.integers(0, 20_000))
def test_once_is_enough(history: list[Message], limit: int) -> None:
    once = truncated(history, limit)

    if tokens(once) <= limit:
        assert truncated(once, limit) == once


def group(number: int, length: int) -> list[Message]:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "look", "arguments": "{}"},
    }
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "word " * length},
    ]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def test_old_results_are_shortened_before_anything_is_left_out() -> None:
    groups = [message for number in range(6) for message in group(number, 500)]
    history = [SYSTEM, user("old"), *groups[:6], user("new"), *groups[6:]]

    made = truncated(history, tokens(history) - 1200)

    assert [m["role"] for m in made] == [m["role"] for m in history]
    lengths = [len(m["content"]) for m in made if m["role"] == "tool"]
    assert [length < 500 for length in lengths] == [True] * 3 + [False] * KEPT_GROUPS


def test_the_oldest_exchange_goes_first_and_that_is_said() -> None:
    history = [SYSTEM, user("first " * 900), user("second " * 300), *group(1, 1), user("third")]

    made = truncated(history, tokens(history) // 4)

    assert made == [SYSTEM, user(LEFT_OUT), user("third")]


def test_a_long_turn_keeps_its_newest_calls() -> None:
    groups = [message for number in range(9) for message in group(number, 60)]
    history = [SYSTEM, user("do it"), *groups]

    made = truncated(history, tokens(history) // 2)

    assert made[:3] == [SYSTEM, user(LEFT_OUT), user("do it")]
    assert made[-2 * KEPT_GROUPS :] == groups[-2 * KEPT_GROUPS :]


LONG = [SYSTEM, user("one " * 500), {"role": "assistant", "content": "two"}, user("three")]
SUMMARY = [SYSTEM, user("[Summary: one, two.]"), user("three")]


class Asked:
    """A function that gives this, and counts."""

    def __init__(self, made: Any) -> None:
        self.made = made
        self.count = 0

    async def __call__(self, messages: list[Message], model: str) -> list[Message]:
        self.count += 1
        if isinstance(self.made, Exception):
            raise self.made
        made: list[Message] = self.made
        return made


def compressor(func: CompressFunc | None, window: int = 400) -> Compressor:
    return Compressor(CompressConfig(window, 0.8, func), "p/m")


async def test_the_function_is_asked_when_the_share_is_reached() -> None:
    asked = Asked(SUMMARY)

    fitted = await compressor(asked).fit(LONG, [])

    assert fitted is not None
    assert fitted.messages == SUMMARY
    assert fitted.after == tokens(SUMMARY) < fitted.before == tokens(LONG)
    assert await compressor(asked, window=10_000).fit(LONG, []) is None
    assert asked.count == 1


async def test_tool_schemas_count() -> None:
    short = [SYSTEM, user("a"), {"role": "assistant", "content": "b"}, user("c " * 100)]
    window = tokens(short, TOOLS)

    # Four fifths of the window are more than the messages, and less than these and the schemas.
    assert await compressor(None, window).fit(short, []) is None
    asked = Asked([SYSTEM, user("c " * 100)])
    assert await compressor(asked, window).fit(short, TOOLS) is not None
    assert asked.count == 1


@pytest.mark.parametrize("count", range(FEW + 1))
async def test_a_few_messages_are_left_alone(count: int) -> None:
    asked = Asked(SUMMARY)

    assert await compressor(asked).fit([SYSTEM, *LONG[1:]][:count], []) is None
    assert asked.count == 0


PARTED = [SYSTEM, group(1, 1)[0], user("three")]


@pytest.mark.parametrize(
    "made",
    [
        RuntimeError("no"),
        LONG,
        [*LONG, user("more")],
        PARTED,
        [user("three")],
        [SYSTEM, SYSTEM, user("three")],
        [{"role": "system", "content": "Obey."}, user("three")],
        [SYSTEM, user("something else")],
        [],
        None,
        ["text"],
        [{}],
    ],
)
async def test_a_function_that_fails_is_not_asked_again(made: Any) -> None:
    asked = Asked(made)
    tried = compressor(asked)

    for _ in range(3):
        fitted = await tried.fit(LONG, [])
        # The rules did it.
        assert fitted is not None
        assert fitted.messages == [SYSTEM, user(LEFT_OUT), user("three")]

    assert asked.count == 1


async def test_a_prompt_that_cannot_be_smaller_is_sent_as_it_is() -> None:
    small = [SYSTEM, user("a"), user("b"), user("c")]

    assert await compressor(None, window=10).fit(small, []) is None


async def test_a_run_goes_on_with_the_smaller_prompt_and_says_so() -> None:
    recorder, heard = Recorder(), list[list[str]]()

    async def notify(lines: list[str]) -> None:
        heard.append(lines)

    model = ScriptedModel(calls(("look", {})), says("done"))
    tool = recorder.tool("look", result="word " * 3000)
    run_config = config(
        model,
        tool,
        messages=[SYSTEM, user("old " * 1000), {"role": "assistant", "content": "x"}, user("new")],
        auto_compress=CompressConfig(1000),
        progress_notifier=notify,
        language="zh",
    )

    answer = await run(run_config)

    assert answer.content == "done"
    assert [m["content"] for m in model.requests[0]] == ["Be brief.", LEFT_OUT, "new"]
    assert tokens(model.requests[1]) <= 1000
    assert any(line.startswith("> 📦 已压缩上下文") for line in heard[-1])
    # The history gets what was said, not what was sent.
    kept = [entry.message for entry in run_config.transcript]
    assert kept[1]["content"].count("word") == 3000
