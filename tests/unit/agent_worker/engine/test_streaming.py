"""What a run lets others see while the model still speaks."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.engine import run
from agent_worker.engine.journal import InMemoryJournal
from agent_worker.engine.thinking import VisibleText, strip_thinking
from agent_worker.llm.client import Answering, ChatRequest, TextDelta
from tests.unit.agent_worker.fakes import Recorder, ScriptedModel, calls, config, says


def shown(*pieces: str) -> str:
    visible = VisibleText()
    return "".join(visible.add(piece) for piece in pieces) + visible.rest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "hello"),
        ("<think>hm</think>hello", "hello"),
        ("\n<Thinking>a<think>b</think>c</thinking>\n\n你好", "你好"),
        ("<think>a</think><think>b</think>x", "x"),
        ("<reasoning>a</reasoning>b", "b"),
        ("<think>never closed", ""),
        ("<thin", "<thin"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("text with <think> in it", "text with <think> in it"),
        ("", ""),
    ],
)
def test_thinking_is_not_shown_however_the_text_is_cut(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert shown(*text) == expected


WORDS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "a", " ", "\n", "<", "好"])
)


@given(WORDS, st.data())
def test_any_cut_shows_the_same(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cut = data.draw(st.integers(0, len(text)))

    assert shown(text[:cut], text[cut:]) == shown(text)


@given(st.lists(st.sampled_from(["<think>", "</think>", "hm"]), max_size=4), st.text("ab 好"))
def test_what_is_shown_ends_as_the_answer_does(thoughts: list[str], said: str) -> None:
    thinking = f"<think>{''.join(thoughts).replace('<think>', '').replace('</think>', '')}</think>"

    assert shown(thinking + said).strip() == strip_thinking(thinking + said).strip()


def test_long_thoughts_are_not_kept_to_be_looked_at_again() -> None:
    visible = VisibleText()
    began = time.process_time()
    assert not any(visible.add(piece) for piece in ["<think>", *["abcd"] * 100_000])
    assert visible.add("</thi") + visible.add("nk>x") == "x"
    # Well below the 12 s of looking at all of it each time.
    assert time.process_time() - began < 2


async def test_a_run_says_what_the_model_says_by_iteration() -> None:
    recorder, heard = Recorder(), list[tuple[int, str]]()
    model = ScriptedModel(calls(("look", {}), text="I look."), says("<think>hm</think>It is 好."))

    answer = await run(
        config(model, recorder.tool("look"), on_text=lambda n, text: heard.append((n, text)))
    )

    spoken = {n: "".join(text for m, text in heard if m == n) for n, _ in heard}
    assert spoken == {1: "I look.", 2: "It is 好."}
    assert answer.content == "It is 好."


async def test_what_is_replayed_is_not_said_again() -> None:
    recorder, journal, heard = Recorder(), InMemoryJournal(), list[str]()
    model = ScriptedModel(calls(("look", {}), text="I look."), says("Done."))
    await run(config(model, recorder.tool("look"), journal=journal))

    answer = await run(
        config(
            ScriptedModel(),
            recorder.tool("look"),
            journal=journal,
            on_text=lambda _, text: heard.append(text),
        )
    )

    assert (answer.content, heard) == ("Done.", [])


async def test_a_model_that_ends_without_a_response_is_a_failure() -> None:
    class Mute(ScriptedModel):
        async def chat_stream(self, request: ChatRequest) -> Answering:
            """Some text, and then nothing more."""
            yield TextDelta("he")

    answer = await run(config(Mute(), on_text=lambda *_: None))

    assert answer.error is not None
    assert answer.error.code == "llm_generate"
