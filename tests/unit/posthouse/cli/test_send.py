"""``posthouse send`` on a real server; the test plays the agent."""

import asyncio
import json
from typing import Any

import pytest

from posthouse import streams, subjects
from posthouse.address import Address
from tests.support.agent import LOCAL, PlayedAgent
from tests.support.servers import Nats, crash
from tests.support.stack import Result, run_cli


class Agent(PlayedAgent):
    """Answers what ``posthouse send`` says."""

    def user_sends(self, *args: str) -> "asyncio.Task[Result]":
        """Run the command in the background."""
        return asyncio.create_task(run_cli("send", *args, env=self.env))


@pytest.fixture
async def agent(bus: Nats) -> Agent:
    return Agent(bus)


async def stored(bus: Nats, subject: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of the last message on a subject of INBOUND."""
    raw = await (await bus.jetstream()).get_last_msg(streams.INBOUND, subject)
    return json.loads(raw.data or b""), raw.headers or {}


async def test_the_answer_is_printed(agent: Agent) -> None:
    command = agent.user_sends("17*23+4 等于多少")
    message = await agent.hear()
    assert message.content == "17*23+4 等于多少"
    assert (message.from_, message.conversation) == (LOCAL, LOCAL)
    await agent.say("395", "another", message.id)
    assert await command == Result(0, "395\n", "")


async def test_only_its_own_answer_is_printed(agent: Agent) -> None:
    await agent.say("an old one", "cli::older")
    command = agent.user_sends("hi")
    message = await agent.hear()
    await agent.say("for somebody else", "cli::other")
    await agent.say("unasked")
    await agent.say("mine", message.id)
    assert (await command).out == "mine\n"


async def test_messages_before_the_final_one_are_printed_too(agent: Agent) -> None:
    command = agent.user_sends("hi")
    message = await agent.hear()
    await agent.say("one moment", message.id, kind="message")
    await agent.say("done", message.id)
    assert (await command).out == "one moment\ndone\n"


async def test_a_notice_is_an_answer(agent: Agent) -> None:
    command = agent.user_sends("hi")
    message = await agent.hear()
    await agent.say("too many waiting", message.id, kind="notice")
    assert await command == Result(0, "too many waiting\n", "")


async def test_an_answer_does_not_command_the_terminal(agent: Agent) -> None:
    command = agent.user_sends("hi")
    message = await agent.hear()
    await agent.say("\x1b]0;title\x07plain\x1b[2J", message.id)
    assert (await command).out == "␛]0;title␇plain␛[2J\n"


async def test_what_is_no_outbound_message_is_passed_over(agent: Agent, bus: Nats) -> None:
    command = agent.user_sends("hi")
    message = await agent.hear()
    await (await bus.jetstream()).publish(subjects.outbound(LOCAL), b"{}")
    await agent.say("fine", message.id)
    assert (await command).out == "fine\n"


async def test_another_address_is_another_conversation(agent: Agent) -> None:
    ada = Address.im("cli", "ada")
    command = agent.user_sends("hi", "--as", "im://cli/ada")
    message = await agent.hear(ada)
    assert message.from_ == ada
    await agent.say("hello Ada", message.id, to=ada)
    assert (await command).out == "hello Ada\n"


async def test_no_answer_in_time_is_exit_code_3(agent: Agent, bus: Nats) -> None:
    result = await agent.user_sends("hi", "--wait", "0.2")
    body, _ = await stored(bus, subjects.inbound(LOCAL))
    assert (result.code, result.out) == (3, "")
    assert f"no answer in 0.2 s; the message is stored as {body['id']}" in result.err


async def test_not_waiting_prints_the_id(agent: Agent, bus: Nats) -> None:
    result = await agent.user_sends("hi", "--wait", "0")
    subject = subjects.inbound(LOCAL)
    body, headers = await stored(bus, subject)
    assert result == Result(0, body["id"] + "\n", "")
    assert body["id"].startswith("cli::")
    assert headers["Nats-Msg-Id"] == f"{subject}:{body['id']}"


@pytest.mark.parametrize("text", ["/stop", "/approve 7f3a", "/status"])
async def test_commands_have_a_subject_of_their_own(agent: Agent, bus: Nats, text: str) -> None:
    await agent.user_sends(text, "--wait", "0")
    body, _ = await stored(bus, subjects.command(LOCAL))
    assert body["content"] == text


async def test_an_answer_after_a_restart_of_the_bus_is_seen(agent: Agent, bus: Nats) -> None:
    command = agent.user_sends("hi")
    message = await agent.hear()
    await crash(bus.server)
    await bus.server.start()
    await agent.say("still here", message.id)
    result = await command
    assert (result.code, result.out) == (0, "still here\n")
    assert "connection to NATS is lost" in result.err
    assert "connection to NATS is back" in result.err


async def test_a_bus_without_streams_says_what_to_do(nats: Nats) -> None:
    result = await run_cli("send", "hi", env={"POSTHOUSE_NATS_URL": nats.url})
    assert result.code == 1
    assert "run `posthouse bootstrap`" in result.err


async def test_a_message_that_is_too_large_is_refused(agent: Agent) -> None:
    result = await agent.user_sends("\x01" * 100_000, "--wait", "0")
    assert result.code == 1
    assert "the limit is 262144" in result.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("",), "there is nothing to send"),
        (("hi", "--as", "local"), "is no address"),
        (("hi", "--as", "smtp://x"), "unknown scheme"),
        (("hi", "--as", "agent://main"), "is no chat"),
    ],
)
async def test_wrong_use_is_explained(agent: Agent, args: tuple[str, ...], words: str) -> None:
    result = await agent.user_sends(*args)
    assert result.code == 2
    assert words in result.err
