"""The keyless model through the ordinary client and the whole engine."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_worker.engine import RunConfig, run
from agent_worker.llm import offline
from agent_worker.llm.client import ChatRequest, Message, TextDelta
from agent_worker.llm.errors import BadModelRequest
from agent_worker.llm.routing import RoutedClient, build_client
from agent_worker.registry import ToolRegistry
from agent_worker.tool import FunctionTool
from agent_worker.tools import ask_user, calculator, current_time
from posthouse.messages import OutboundMessage
from posthouse.settings import load
from tests.unit.agent_worker.fakes import Recorder

TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> AsyncIterator[RoutedClient]:
    """The client of the default configuration."""
    monkeypatch.chdir(tmp_path)
    client = build_client(load())
    yield client
    await client.aclose()


# Those of the shipped tools that touch nothing outside.
HARMLESS = [*ask_user.tools(), *calculator.tools(), *current_time.tools()]


class Chat:
    """A conversation with the keyless model."""

    def __init__(self, client: RoutedClient, *more: FunctionTool) -> None:
        self._client = client
        self.tools = ToolRegistry([*HARMLESS, *more])
        self.history: list[Message] = []

    async def say(self, *texts: str) -> OutboundMessage:
        """One turn."""
        self.history += [{"role": "user", "content": text} for text in texts]
        config = RunConfig(
            llm_client=self._client, model="", tools=self.tools, messages=list(self.history)
        )
        answer = await run(config)
        self.history += [entry.message for entry in config.transcript]
        return answer


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("17*23+4", "395"),
        ("17*23+4 等于多少", "395"),
        ("17*23+4等于多少？", "395"),
        ("12 加 30 等于多少", "42"),
        ("12加30是多少", "42"),
        ("请计算 (1+2)×3", "9"),
        ("100 除以 8", "12.5"),
        ("算一下 2 的 10 次方", "1024"),
        ("what is 2+3?", "5"),
        ("What's 2 + 3?", "5"),
        ("please calculate 6 * 7", "42"),
        ("how much is 10 divided by 4", "2.5"),
        ("3 x 4 = ?", "12"),
        ("2 to the power of 8", "256"),
        ("9 squared", "81"),
        ("5 的平方是多少", "25"),
    ],
)
async def test_arithmetic(client: RoutedClient, text: str, result: str) -> None:
    answer = await Chat(client).say(text)

    assert answer.content == f"calculator → {result}"
    assert answer.tools_used == ("calculator",)


@pytest.mark.parametrize(
    "text",
    [
        "what time is it?",
        "What's the time?",
        "what is the current time in Europe/Berlin",
        "现在几点",
        "现在几点了？",
        "今天星期几",
    ],
)
async def test_time(client: RoutedClient, text: str) -> None:
    answer = await Chat(client).say(text)

    assert answer.content.startswith("current_time → 2")
    assert ("Europe/Berlin" in text) == ("Europe/Berlin" in answer.content)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hello", "I am not a language model"),
        ("Write me a poem about autumn", "I am not a language model"),
        ("2024-05-01", "I am not a language model"),
        ("你好", "不是语言模型"),
        ("写一首诗", "不是语言模型"),
    ],
)
async def test_anything_else_gets_the_honest_answer(
    client: RoutedClient, text: str, part: str
) -> None:
    answer = await Chat(client).say(text)

    assert part in answer.content
    assert "posthouse.yaml" in answer.content
    assert "17*23+4" in answer.content
    assert answer.error is None
    assert answer.metadata["model"] == "offline/rules-1"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("what did I say last?", "Your last message was: “blue is nice”"),
        ("What was my last message?", "Your last message was: “blue is nice”"),
        ("我上一条消息是什么", "你的上一条消息是：“blue is nice”"),
        ("我刚才说了什么？", "你的上一条消息是：“blue is nice”"),
    ],
)
async def test_recalls_the_message_before(client: RoutedClient, text: str, quoted: str) -> None:
    chat = Chat(client)
    await chat.say("2+2")
    await chat.say("blue is nice")

    assert (await chat.say(text)).content == quoted


async def test_says_that_there_is_no_message_before(client: RoutedClient) -> None:
    answer = await Chat(client).say("what did I say last?")

    assert answer.content == "There is no earlier message of yours in this conversation."


@pytest.mark.parametrize(
    "text",
    [
        "count apples",
        "Count apples",
        '!tool count {"text": "apples"}',
        '/tool count {"text": "apples"}',
        'count {"text": "apples"}',
    ],
)
async def test_any_offered_tool_can_be_called_by_name(client: RoutedClient, text: str) -> None:
    recorder = Recorder()
    answer = await Chat(client, recorder.tool("count", "write", schema=TEXT)).say(text)

    assert answer.content == "count → count done"
    assert recorder.log == ["+count", "-count"]


async def test_a_directive_carries_its_arguments_unchanged(client: RoutedClient) -> None:
    chat = Chat(client, Recorder().tool("note", schema=TEXT))

    await chat.say('!tool note {"text": "first, then \\"and\\" 然后"}')

    arguments = chat.history[1]["tool_calls"][0]["function"]["arguments"]
    assert 'first, then \\"and\\" 然后' in arguments


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("!tool nope {}", "a tool named nope"),
        ("!tool calculator {oops", "not a JSON object"),
        ("remember that I like tea", "a tool named remember"),
        ("what do you remember about tea?", "a tool named recall"),
        ("remind me to drink tea", "a tool named remind"),
        ("search for tea", "a tool named search"),
        ("fetch https://example.org/tea", "a tool named fetch"),
        ("ask the researcher to search for tea", "a tool named sub_agent"),
        ("记住我喜欢茶", "名为 remember 的工具"),
        ("你还记得我的生日吗", "名为 recall 的工具"),
        ("明天提醒我喝茶", "名为 remind 的工具"),
        ("搜索绿茶", "名为 search 的工具"),
        ("让研究员助手去查茶", "名为 sub_agent 的工具"),
    ],
)
async def test_a_missing_tool_is_named(client: RoutedClient, text: str, part: str) -> None:
    answer = await Chat(client).say(text)

    assert part in answer.content
    assert answer.tools_used == ()


@pytest.mark.parametrize(
    ("tool", "text", "argument"),
    [
        ("remember", "remember that I like tea and cake", "I like tea and cake"),
        ("remember", "记住我喜欢茶", "我喜欢茶"),
        ("recall", "what do you remember about tea?", "tea"),
        ("web_search", "search for green tea", "green tea"),
        ("web_search", "搜索绿茶", "绿茶"),
        ("fetch", "https://example.org/tea", "https://example.org/tea"),
        ("remind", "remind me to drink tea", "to drink tea"),
        ("search", "search for tea", "tea"),
    ],
)
async def test_an_offered_tool_gets_the_argument(
    client: RoutedClient, tool: str, text: str, argument: str
) -> None:
    chat = Chat(client, Recorder().tool(tool, schema=TEXT))

    answer = await chat.say(text)

    assert answer.tools_used == (tool,)
    call = chat.history[1]["tool_calls"][0]["function"]
    assert call == {"name": tool, "arguments": f'{{"text": "{argument}"}}'}


async def test_delegates_with_role_and_task(client: RoutedClient) -> None:
    schema = {"type": "object", "properties": {"role": {}, "task": {}}}
    chat = Chat(client, Recorder().tool("sub_agent", schema=schema))

    await chat.say("ask the researcher to search for tea")

    arguments = chat.history[1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"role": "researcher", "task": "search for tea"}'


@pytest.mark.parametrize(
    "text",
    [
        "what is 1+1 then what is 2+2",
        "what is 1+1, and then what is 2+2",
        "1+1 等于多少，然后 2+2 等于多少",
        "1. what is 1+1\n2. what is 2+2",
        '!tool calculator {"expression": "1+1"} then what is 2+2',
    ],
)
async def test_sequences_run_one_after_the_other(client: RoutedClient, text: str) -> None:
    chat = Chat(client)

    answer = await chat.say(text)

    assert answer.content == "calculator → 2\ncalculator → 4"
    roles = [message["role"] for message in chat.history]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_independent_calls_go_together(client: RoutedClient) -> None:
    chat = Chat(client)

    answer = await chat.say("what is 1+1 and what is 2+2")

    assert answer.content == "calculator → 2\ncalculator → 4"
    assert len(chat.history[1]["tool_calls"]) == 2


async def test_merged_messages_are_all_handled(client: RoutedClient) -> None:
    answer = await Chat(client).say("what is 1+1", "blue", "what did I say last?")

    first, honest, last = answer.content.split("\n")
    assert first == "calculator → 2"
    assert "not a language model" in honest
    assert last == "Your last message was: “blue”"


async def test_a_failed_step_is_told_and_ends_the_sequence(client: RoutedClient) -> None:
    answer = await Chat(client).say("what is 1/0 then what is 2+2")

    assert answer.content == "calculator failed: division by zero."


async def test_stops_after_six_steps(client: RoutedClient) -> None:
    answer = await Chat(client).say(" then ".join(f"what is {n}+0" for n in range(9)))

    assert answer.content.count("calculator →") == 6
    assert "I stop after 6 steps" in answer.content


async def test_quotes_at_most_three_lines_of_a_result(client: RoutedClient) -> None:
    long = Recorder().tool("poem", result="a\nb\nc\nd")

    answer = await Chat(client, long).say("poem")

    assert answer.content == "poem → a\nb\nc …"


async def test_takes_up_the_answer_to_its_question(client: RoutedClient) -> None:
    chat = Chat(client)

    asked = await chat.say("ask_user What is your name?")
    answered = await chat.say("Bob")

    assert asked.waiting_user
    assert asked.content == "What is your name?"
    assert answered.content == "Your answer: “Bob”"


async def test_the_same_history_gives_the_same_answer(client: RoutedClient) -> None:
    request = ChatRequest(
        messages=[{"role": "user", "content": "what is 1+1"}],
        tools=ToolRegistry(HARMLESS).schemas_for("main"),
    )

    first, second = await client.chat(request), await client.chat(request)

    assert first == second
    assert first.usage.input_tokens > 0
    assert first.message["tool_calls"][0]["id"] == "off_1_1"


async def test_another_model_name_is_refused_like_by_any_provider(client: RoutedClient) -> None:
    with pytest.raises(BadModelRequest, match="there is no model 'gpt-9'"):
        await client.chat(ChatRequest(messages=[], model="offline/gpt-9"))


@pytest.mark.parametrize("text", ["17*23+4 等于多少", "你好，今天天气怎么样？", "/echo {}"])
async def test_a_stream_says_the_same_as_a_whole_answer(client: RoutedClient, text: str) -> None:
    request = ChatRequest(
        messages=[{"role": "user", "content": text}],
        tools=ToolRegistry(HARMLESS).schemas_for("main"),
    )

    whole = await client.chat(request)
    *pieces, response = [piece async for piece in client.chat_stream(request)]

    assert response == whole
    said = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    assert "".join(said) == whole.message["content"]
    assert all(len(piece) <= 16 for piece in said)


def test_a_long_answer_does_not_become_thousands_of_pieces() -> None:
    choice = {"message": {"content": "x" * 100_000}, "finish_reason": "stop"}
    completion = {"id": "1", "created": 0, "model": "m", "choices": [choice], "usage": {}}

    body = b"".join(offline.event_stream(completion))

    assert 500 <= body.count(b"data: ") < 520
