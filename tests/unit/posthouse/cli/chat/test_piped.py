"""``posthouse chat`` without a terminal, on a real server; the test plays the agent."""

import asyncio

import pytest

from tests.support.agent import PlayedAgent
from tests.support.servers import Nats
from tests.support.stack import Result, run_cli


@pytest.fixture
def agent(bus: Nats) -> PlayedAgent:
    return PlayedAgent(bus)


async def test_a_question_of_the_agent_is_answered_by_the_next_line(agent: PlayedAgent) -> None:
    chat = asyncio.create_task(run_cli("chat", input="book it\nMonday\n", env=agent.env))
    first = await agent.hear()
    await agent.say("one moment", first.id, kind="message")
    await agent.say("When?", first.id)
    second = await agent.hear(after=1)
    assert second.content == "Monday"
    await agent.say("Booked.", second.id)
    assert await chat == Result(0, "one moment\nWhen?\nBooked.\n", "")


async def test_nothing_to_say_is_nothing_to_do(agent: PlayedAgent) -> None:
    assert await run_cli("chat", input="\n  \n", env=agent.env) == Result(0, "", "")


async def test_what_is_no_utf_8_is_refused(agent: PlayedAgent) -> None:
    result = await run_cli("chat", input=b"caf\xe9\n", env=agent.env)
    assert result == Result(1, "", "posthouse: the text is not UTF-8\n")
