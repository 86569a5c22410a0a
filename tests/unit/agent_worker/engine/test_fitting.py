"""Model responses that are too large for the journal."""

import orjson
import pytest

from agent_worker.engine import run
from agent_worker.engine.fitting import CUT, MAX_BYTES, MAX_CALLS, fitted
from agent_worker.engine.journal import InMemoryJournal
from agent_worker.llm.client import Message
from tests.unit.agent_worker.fakes import ScriptedModel, config, says


def message(content: str, **more: object) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(id: str, arguments: str, name: str = "look") -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("character", ["a", "界", "🙂", "\n", "\x01", '"'])
def test_a_text_is_cut_to_what_can_be_stored(character: str) -> None:
    given = message(character * 300_000)
    kept, cut = fitted(given)
    assert cut
    assert MAX_BYTES * 0.99 < len(orjson.dumps(kept)) <= MAX_BYTES
    text = kept["content"].removesuffix(CUT)
    assert given["content"].startswith(text)
    assert kept["content"] != text


def test_what_fits_stays_as_it_is() -> None:
    given = message("界" * 50_000, reasoning_content="hm", tool_calls=[call("1", "{}")])
    assert fitted(given) == (given, False)


def test_thoughts_are_left_out_before_anything_is_cut() -> None:
    reasoned = message("the answer", reasoning_content="hm " * 100_000)
    assert fitted(reasoned) == (message("the answer"), False)
    thought = message(f"<think>{'hm ' * 100_000}</think>the answer")
    assert fitted(thought) == (message("the answer"), False)


def test_calls_that_are_too_large_keep_their_pairs_and_nothing_else() -> None:
    kept, cut = fitted(message("hm", tool_calls=[call("1", "x" * 300_000), call("2", "{}")]))
    assert cut
    assert kept == message("hm", tool_calls=[call("1", "{}"), call("2", "{}")])
    many = [call(str(number), "{}", name="n" * 5000) for number in range(500)]
    kept, _ = fitted(message("x" * 300_000, tool_calls=many))
    assert len(kept["tool_calls"]) == MAX_CALLS
    assert len(orjson.dumps(kept)) <= MAX_BYTES


async def test_a_run_answers_with_what_could_be_kept() -> None:
    journal = InMemoryJournal()
    answer = await run(config(ScriptedModel(says("界" * 300_000)), journal=journal))
    assert answer.error is None
    assert answer.content.endswith(CUT)
    assert len(answer.to_wire()) < 192 * 1024
    [step] = journal.steps.values()
    assert step.body["finish_reason"] == "length"
    assert len(orjson.dumps(step.body)) < 192 * 1024
