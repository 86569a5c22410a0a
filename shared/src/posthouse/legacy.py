"""Reads the payloads of older senders: flat keys, camelCase, Go-style capitals.

``channel`` + ``sender_id`` become ``from``, ``channel`` + ``chat_id`` become ``conversation``; the
channel ``agent`` names the parent agent instead. All keys: docs/protocol.md.
"""

from typing import Any

from posthouse.address import Address

_LEGACY = (
    *("channel", "sender_id", "sender_name", "chat_id", "chat_type", "content", "media"),
    *("metadata", "time", "request_id", "is_cron"),
    *("parent_agent_id", "system_prompt", "allowed_tools", "role_name"),
)
_BY_FOLDED_NAME = {name.replace("_", ""): name for name in _LEGACY}
# What senders in Go write for a field they never set.
_UNSET = {"chat_type": ("",), "time": ("", "0001-01-01T00:00:00Z")}
_CHAT_TYPES = {"private": "p2p", "direct": "p2p", "single": "p2p"}


def upgrade(data: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """A copy of ``data`` with today's keys; ``known`` are the fields of today's model.

    Null values are left out (Go writes nil slices and maps as null). Raises AddressError when
    the flat keys do not make an address.
    """
    fields: dict[str, Any] = {}
    for key, value in data.items():
        if value is None:
            continue
        name = key if key in known else _BY_FOLDED_NAME.get(key.replace("_", "").lower(), key)
        if name == key or data.get(name) is None:
            fields[name] = value
    for name, unset in _UNSET.items():
        if fields.get(name) in unset:
            del fields[name]
    _upgrade_addresses(fields)
    if isinstance(fields.get("chat_type"), str):
        fields["chat_type"] = _CHAT_TYPES.get(fields["chat_type"], fields["chat_type"])
    if isinstance(fields.get("media"), list):
        fields["media"] = [{"url": m} if isinstance(m, str) else m for m in fields["media"]]
    return fields


def _upgrade_addresses(fields: dict[str, Any]) -> None:
    channel, sender, chat = (fields.get(k) for k in ("channel", "sender_id", "chat_id"))
    if not isinstance(channel, str) or not channel:
        return
    if channel == "agent":
        parent = fields.get("parent_agent_id")
        if isinstance(parent, str) and parent:
            fields.setdefault("from", Address.agent(*parent.split("/")))
        fields.setdefault("chat_type", "agent")
        return
    if isinstance(sender, str) and sender:
        fields.setdefault("from", Address.im(channel, sender))
    if isinstance(chat, str) and chat:
        fields.setdefault("conversation", Address.im(channel, chat))
