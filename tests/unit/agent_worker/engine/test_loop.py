"""The loop: answers, tools, limits, failures; what leaves the run and what enters the history."""

from typing import Any

import pytest

from agent_worker.engine import InMemoryJournal, ToolContextExtras, run
from agent_worker.llm.errors import ModelAuth, RateLimited
from agent_worker.tool import ToolResult
from posthouse.address import Address
from tests.unit.agent_worker.fakes import Recorder, ScriptedModel, calls, config, results, says


async def test_answers() -> None:
    model = ScriptedModel(says("hello", tokens=(7, 3)))
    given = config(
        model,
        channel="feishu",
        chat_id="oc_x",
        in_reply_to=("m1", "m2"),
        messages=[{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
    )

    answer = await run(given)

    assert answer.content == "hello"
    assert answer.error is None
    assert answer.from_ == Address.agent("main")
    assert answer.to == answer.conversation == Address.im("feishu", "oc_x")
    assert answer.in_reply_to == ("m1", "m2")
    assert answer.metadata["model"] == "fake/model"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    assert model.requests[0] == given.messages
    assert [entry.message for entry in given.transcript] == [
        {"role": "assistant", "content": "hello"}
    ]


async def test_the_reply_of_a_sub_agent_goes_to_its_parent() -> None:
    parent = Address.agent("main")
    given = config(ScriptedModel(says("done")), agent_id="main/helper", to=parent)

    answer = await run(given)

    assert answer.from_ == Address.agent("main", "helper")
    assert answer.to == parent


async def test_a_tool_result_reaches_the_model_paired_with_its_call() -> None:
    recorder = Recorder()
    model = ScriptedModel(calls(("look", {"at": "sky"})), says("blue"))
    given = config(model, recorder.tool("look", result="it is blue"))

    answer = await run(given)

    assert answer.content == "blue"
    assert answer.tools_used == ("look",)
    assert answer.usage is not None
    assert answer.usage.tool_calls == 1
    assert answer.usage.input_tokens == 20
    _, asked, result = model.requests[1]
    assert asked["tool_calls"][0]["id"] == result["tool_call_id"]
    assert result["content"] == "it is blue"


async def test_the_caller_s_messages_stay_as_they_are() -> None:
    model = ScriptedModel(calls(("look", {})), says("ok"))
    given = config(model, Recorder().tool("look"))
    before = [dict(message) for message in given.messages]

    await run(given)

    assert given.messages == before


async def test_call_ids_are_unique_whatever_the_provider_numbers() -> None:
    model = ScriptedModel(calls(("look", {}), ("look", {})), calls(("look", {})), says("ok"))

    await run(config(model, Recorder().tool("look")))

    ids = [c["id"] for m in model.requests[-1] for c in m.get("tool_calls", ())]
    assert len(set(ids)) == 3
    assert all(len(i) == 9 and i.isalnum() for i in ids)


async def test_stops_at_the_maximum_of_iterations() -> None:
    model = ScriptedModel(*[calls(("look", {})) for _ in range(3)])
    given = config(model, Recorder().tool("look"), max_iterations=3, text="看天")

    answer = await run(given)

    assert answer.content == "已达到最大迭代次数，请重新描述你的需求。"
    assert answer.error is not None
    assert answer.error.code == "max_iterations"
    assert answer.tools_used == ("look",)
    assert len(model.requests) == 3


async def test_zero_iterations_mean_a_hundred() -> None:
    model = ScriptedModel(*[calls(("look", {})) for _ in range(100)])

    answer = await run(config(model, Recorder().tool("look"), max_iterations=0))

    assert answer.error is not None
    assert len(model.requests) == 100


@pytest.mark.parametrize(
    ("cause", "code", "retryable"),
    [
        (RateLimited("slow down"), "rate_limited", True),
        (ModelAuth("bad key"), "model_auth", False),
        (ValueError("broken"), "ValueError", False),
        (TimeoutError("late"), "TimeoutError", False),
    ],
)
async def test_a_model_failure_keeps_its_cause(
    cause: Exception, code: str, retryable: bool
) -> None:
    model = ScriptedModel(calls(("look", {})), cause)

    answer = await run(config(model, Recorder().tool("look")))

    assert answer.error is not None
    assert answer.error.code == "llm_generate"
    assert answer.error.message == str(cause)
    assert answer.error.details["cause"] == code
    assert answer.error.retryable is retryable
    assert answer.content == "The model could not be reached. Please try again later."
    assert answer.tools_used == ("look",)


@pytest.mark.parametrize("text", ["", "  \n", "<think>hm</think>", "<think>and so on"])
async def test_an_answer_without_words_is_an_error_not_silence(text: str) -> None:
    answer = await run(config(ScriptedModel(says(text))))

    assert answer.error is not None
    assert answer.error.code == "no_answer"
    assert answer.content == "The model gave no answer. Please try again."


async def test_thinking_is_kept_in_the_history_and_hidden_from_the_user() -> None:
    given = config(ScriptedModel(says("<think>let me see</think>\nfour")))

    answer = await run(given)

    assert answer.content == "four"
    assert given.transcript[0].message["content"] == "<think>let me see</think>\nfour"


async def test_a_question_to_the_user_ends_the_turn() -> None:
    ask = Recorder().tool("ask", result=ToolResult("Which city?", waiting_user=True))
    model = ScriptedModel(calls(("ask", {})))
    given = config(model, ask)

    answer = await run(given)

    assert answer.waiting_user
    assert answer.content == "Which city?"
    assert answer.error is None
    assert [entry.message["role"] for entry in given.transcript] == ["assistant", "tool"]


async def test_siblings_of_a_question_still_run_and_are_paired() -> None:
    recorder = Recorder()
    ask = recorder.tool("ask", result=ToolResult("Which city?", waiting_user=True))
    write = recorder.tool("write", "write")
    given = config(ScriptedModel(calls(("ask", {}), ("write", {}), ("ask", {}))), ask, write)

    answer = await run(given)

    assert answer.content == "Which city?"
    assert results([entry.message for entry in given.transcript]) == [
        "Which city?",
        "write done",
        "Which city?",
    ]


async def test_what_the_user_saw_ends_the_history_of_a_failed_run() -> None:
    given = config(ScriptedModel(RateLimited("no")))

    answer = await run(given)

    assert [entry.message for entry in given.transcript] == [
        {"role": "assistant", "content": answer.content}
    ]
    assert given.transcript[0].step is None


async def test_the_transcript_names_the_journal_steps() -> None:
    journal = InMemoryJournal()
    model = ScriptedModel(calls(("look", {}), ("write", {})), says("ok"))
    recorder = Recorder()
    tools = recorder.tool("look"), recorder.tool("write", "write")
    given = config(model, *tools, journal=journal)

    await run(given)

    stored = {step.n: step.body.get("message") for step in journal.steps.values()}
    assert [stored[entry.step] for entry in given.transcript if entry.step] == [
        entry.message for entry in given.transcript
    ]


async def test_the_history_is_paired_before_the_model_sees_it() -> None:
    orphan = {"role": "tool", "tool_call_id": "x", "content": "lost"}
    model = ScriptedModel(says("ok"))

    await run(config(model, messages=[orphan, {"role": "user", "content": "hi"}]))

    assert model.requests[0] == [{"role": "user", "content": "hi"}]


async def test_the_model_is_told_its_tools_and_limits() -> None:
    model = ScriptedModel(says("ok"))
    look = Recorder().tool("look")

    await run(config(model, look, max_tokens=50, temperature=0.5, tier="economy"))

    chat = model.chats[0]
    assert [tool["function"]["name"] for tool in chat.tools] == ["look"]
    assert (chat.max_tokens, chat.temperature, chat.model_hints.tier) == (50, 0.5, "economy")


async def test_the_tool_context_comes_from_the_config_alone() -> None:
    sent: list[tuple[str, str, str]] = []

    async def send(channel: str, chat_id: str, content: str) -> None:
        sent.append((channel, chat_id, content))

    recorder = Recorder()
    model = ScriptedModel(calls(("look", {"sender_id": "mallory"})), says("ok"))
    given = config(
        model,
        recorder.tool("look"),
        channel="feishu",
        chat_id="oc_x",
        sender_id="ou_1",
        sender_name="Ada",
        send_func=send,
        tool_context_extras=ToolContextExtras(tenant_id=7),
    )

    await run(given)

    context = recorder.contexts[0]
    assert (context.channel, context.chat_id, context.sender_id) == ("feishu", "oc_x", "ou_1")
    assert context.session_key == "feishu:oc_x"
    assert context.extras.tenant_id == 7
    assert context.idempotency_key == "run-1:1:0"
    assert context.send_func is send


async def test_nul_and_lone_surrogates_never_reach_the_history() -> None:
    model = ScriptedModel(calls(("look", {}), text="a\0b"), says("x\ud800y"))
    given = config(model, Recorder().tool("look", result="c\0d\udfff"), journal=InMemoryJournal())

    answer = await run(given)

    assert answer.content == "x\ufffdy"
    contents = [entry.message["content"] for entry in given.transcript]
    assert contents == ["ab", "cd\ufffd", "x\ufffdy"]


class Watcher:
    """Notes progress lines and events."""

    def __init__(self) -> None:
        self.snapshots: list[list[str]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def progress(self, lines: list[str]) -> None:
        self.snapshots.append(lines)

    async def event(self, event_type: str, payload: dict[str, Any]) -> None:
        self.events.append((event_type, payload))


async def test_progress_has_one_slot_a_call_and_thinking_from_the_second_iteration() -> None:
    recorder, watcher = Recorder(), Watcher()
    model = ScriptedModel(
        calls(("look", {"at": "sky"}), ("fail", {}), text="I look."), says("so it is")
    )
    tools = recorder.tool("look"), recorder.tool("fail", result=ValueError("no"))

    await run(config(model, *tools, text="看天", progress_notifier=watcher.progress))

    assert watcher.snapshots[0] == ["I look."]
    assert ["I look.", "> ⏳ look: sky ...", "> ⏳ fail ..."] in watcher.snapshots
    final = watcher.snapshots[-1]
    assert final == ["I look.", "> ✅ look: sky (0.0s)", "> ❌ fail (0.0s)", "> 💭 思考中..."]


async def test_events_tell_what_happens() -> None:
    watcher = Watcher()
    model = ScriptedModel(calls(("look", {})), says("ok"))

    await run(config(model, Recorder().tool("look"), events=watcher.event))

    assert [kind for kind, _ in watcher.events] == [
        "agent.started",
        "tool.started",
        "tool.finished",
    ]
    assert watcher.events[0][1]["agent"] == "main"
    assert watcher.events[2][1]["tool"] == "look"
    assert watcher.events[2][1]["ok"] is True


async def test_broken_hooks_do_not_end_the_run() -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("no")

    model = ScriptedModel(calls(("look", {})), says("ok"))
    given = config(model, Recorder().tool("look"), events=broken, progress_notifier=broken)

    assert (await run(given)).content == "ok"
