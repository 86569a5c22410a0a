"""Addresses: every one reads back as itself, and what is none is refused."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from pydantic import BaseModel, ValidationError

from posthouse.address import Address
from posthouse.errors import AddressError, PermanentError
from tests.unit.posthouse.strategies import addresses

EXAMPLES = {
    "im://feishu/oc_x": Address("im", "feishu", "oc_x"),
    "im://feishu+bot2/oc_x": Address("im", "feishu+bot2", "oc_x"),
    "im://cli/local": Address.im("cli", "local"),
    "im://web/a/b//c/": Address.im("web", "a/b//c/"),
    "im://web/群 😀": Address.im("web", "群 😀"),
    "im://feishu": Address("im", "feishu"),
    "agent://main": Address.agent("main"),
    "agent://main/code-reviewer/x": Address.agent("main", "code-reviewer", "x"),
    "system://cron": Address.system("cron"),
}
NOT_ADDRESSES = [
    "",
    "feishu/oc_x",
    "im:/feishu/x",
    "mail://a/b",
    "IM://feishu/x",
    " im://feishu/x",
    "://feishu/x",
    "im://",
    "im:///x",
    "im://feishu/a\nb",
    "im://fei\x00shu/x",
    "im://feishu/\x7f",
    "im://feishu/\x85",
    "im://feishu/\ud800",
]


class Holder(BaseModel):
    """A model with an address."""

    address: Address


@given(addresses)
def test_every_address_reads_back(address: Address) -> None:
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples(text: str) -> None:
    assert Address.parse(text) == EXAMPLES[text]
    assert str(EXAMPLES[text]) == text


@pytest.mark.parametrize("text", NOT_ADDRESSES)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert isinstance(caught.value, PermanentError)


def test_builders_refuse_what_parse_could_not_read() -> None:
    builds: list[Callable[[], Address]] = [
        lambda: Address.im("a/b", "x"),
        lambda: Address.im("", "x"),
        lambda: Address.agent(),
        lambda: Address.agent("a/b"),
        lambda: Address.system("a/b"),
        lambda: Address("mail", "a"),
    ]
    for build in builds:
        with pytest.raises(AddressError):
            build()


def test_what_kind_it_is() -> None:
    kinds = {
        text: (address.is_im, address.is_agent, address.is_system, address.channel)
        for text, address in EXAMPLES.items()
    }
    assert kinds["im://feishu+bot2/oc_x"] == (True, False, False, "feishu+bot2")
    assert kinds["agent://main"] == (False, True, False, "")
    assert kinds["system://cron"] == (False, False, True, "")


def test_in_json_it_is_its_uri() -> None:
    holder = Holder(address=Address.agent("main", "x"))
    assert holder.model_dump_json() == '{"address":"agent://main/x"}'
    assert Holder.model_validate_json(holder.model_dump_json()) == holder
    for schema in (Holder.model_json_schema(), Holder.model_json_schema(mode="serialization")):
        assert schema["properties"]["address"]["type"] == "string"


@pytest.mark.parametrize("value", [None, 5, ["im://a/b"], {"scheme": "im"}, "nowhere", "im://"])
def test_models_refuse_what_is_no_address(value: object) -> None:
    with pytest.raises(ValidationError):
        Holder.model_validate({"address": value})


def test_it_cannot_be_changed_and_is_a_key() -> None:
    address = Address.im("cli", "local")
    with pytest.raises(dataclasses.FrozenInstanceError):
        address.id = "other"  # type: ignore[misc]
    assert {address: 1}[Address.parse("im://cli/local")] == 1
