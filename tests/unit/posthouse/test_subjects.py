"""Subjects: valid for NATS whatever an address holds, and read back without loss."""

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from posthouse import subjects
from posthouse.address import Address
from posthouse.errors import AddressError
from tests.unit.posthouse.strategies import addresses, domains, texts

# No empty token, no space, no wildcard: what NATS takes in a subject to publish on.
SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
LONG = "群" * 60

OF_ADDRESS: list[Callable[[Address], str]] = [
    subjects.inbound,
    subjects.outbound,
    subjects.command,
    subjects.control,
    subjects.agent,
    lambda address: subjects.dead_letter(subjects.inbound(address)),
]
OF_ID: list[Callable[[str], str]] = [
    subjects.frames,
    subjects.control_call,
    subjects.deliver_durable,
    lambda id_: subjects.events(Address.im("cli", "local"), id_),
]
UNREADABLE = ["a.b", "a b", "*", ">", "=2", "=2f", "=zz", "=FF", "=C3", "=61", "群", "a\n", ""]


@given(texts)
@example("*")
@example(">")
@example(" ")
@example("a.b")
@example("=41")
@example("你好 😀")
@example("")
def test_a_token_reads_back(text: str) -> None:
    assert re.fullmatch("[A-Za-z0-9_=-]+", subjects.token(text))
    assert subjects.untoken(subjects.token(text)) == text


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_no_token_is_made_of_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        subjects.untoken(text)


@given(addresses)
def test_a_key_leads_back_to_its_address(address: Address) -> None:
    key = subjects.key(address)
    if any(subjects.is_hashed(part) for part in key.split(".")):
        with pytest.raises(AddressError):
            subjects.address(key)
    else:
        assert subjects.address(key) == address


@given(addresses, addresses)
@example(Address.im("a", "b"), Address.im("a.b", ""))
@example(Address.im("a", "/"), Address.im("a", "=2F"))
@example(Address.agent("main", "a.b"), Address.agent("main", "a", "b"))
@example(Address.agent("main", "", ""), Address.agent("main", "/"))
@example(Address("im", "agent", "main"), Address.agent("main"))
def test_no_two_addresses_share_a_key(one: Address, other: Address) -> None:
    assume(one != other)
    assert subjects.key(one) != subjects.key(other)


@given(addresses, st.text())
def test_every_subject_is_valid(address: Address, text: str) -> None:
    for of_address in OF_ADDRESS:
        assert SUBJECT.fullmatch(of_address(address))
    for of_id in OF_ID:
        assert SUBJECT.fullmatch(of_id(text))
    assert SUBJECT.fullmatch(subjects.outbound_domain(address.domain).removesuffix(".>"))


@given(addresses)
def test_the_key_is_inside_the_subject(address: Address) -> None:
    for subject in (subjects.inbound, subjects.outbound, subjects.command):
        assert subjects.conversation_key(subject(address)) == subjects.key(address)


def test_spelling() -> None:
    assert subjects.inbound(Address.im("cli", "local")) == "inbound.im.cli.local"
    assert subjects.outbound(Address.im("feishu", "oc_x/1")) == "outbound.im.feishu.oc_x=2F1"
    assert subjects.key(Address.im("web", "群")) == "im.web.=E7=BE=A4"
    assert subjects.key(Address.system("cron")) == "system.cron.="
    assert subjects.agent(Address.agent("main", "code-reviewer")) == "agent.main.code-reviewer"
    assert subjects.agent(Address.agent("main", "a", "b.c")) == "agent.main.a.b=2Ec"
    assert subjects.events(Address.im("cli", "local"), "w1") == "events.im.cli.local.w1"
    assert subjects.dead_letter("inbound.im.cli.local") == "dlq.inbound.im.cli.local"
    assert subjects.memory("turn", "open") == "memory.turn.open"


def test_a_bot_has_a_domain_of_its_own() -> None:
    """R18: ``feishu`` and ``feishu+bot2`` share neither subject nor durable."""
    bot = Address.im("feishu+bot2", "oc_x")
    assert subjects.outbound(bot) == "outbound.im.feishu=2Bbot2.oc_x"
    assert subjects.outbound(bot).startswith(subjects.outbound_domain("feishu+bot2")[:-1])
    assert not subjects.outbound(bot).startswith(subjects.outbound_domain("feishu")[:-1])
    assert subjects.deliver_durable("feishu+bot2") == "deliver-feishu=2Bbot2"


@given(domains)
def test_a_durable_listens_to_its_own_domain(domain: str) -> None:
    mine = subjects.outbound_domain(domain).removesuffix(">")
    assert subjects.outbound(Address.im(domain, "x")).startswith(mine)
    assert not subjects.outbound(Address.im(domain + "+b", "x")).startswith(mine)


@pytest.mark.parametrize(
    ("id_", "hashed"), [("x" * 120, False), ("x" * 121, True), ("群" * 13, False), (LONG, True)]
)
def test_a_long_id_is_hashed(id_: str, hashed: bool) -> None:
    *_, last = subjects.key(Address.im("cli", id_)).split(".")
    assert subjects.is_hashed(last) is hashed
    assert len(last) <= 120
    assert bool(re.fullmatch("=h[0-9a-f]{32}", last)) is hashed


def test_hashes_differ_and_stay() -> None:
    keys = {subjects.key(Address.im("cli", LONG + str(n))) for n in range(50)}
    assert len(keys) == 50
    assert subjects.key(Address.im("cli", "x" * 121)) == (
        "im.cli.=h79072a47bfaa54e6057a9ee21e0dea64"
    )


@pytest.mark.parametrize(
    "key",
    [
        "",
        "im",
        "im.cli",
        "im.cli.local.more",
        "im.=.x",
        "im..x",
        "mail.a.b",
        "agent",
        "agent.",
        "agent.=",
        "agent.main.=",
        "im.cli.=00",
        "im.cli." + "x" * 121,
        "im.a=2Fb.x",
        "im.cli.=h" + "0" * 32,
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(AddressError):
        subjects.address(key)
