"""``posthouse chat``: talk to an agent at the terminal."""

from posthouse.cli.chat.command import chat

__all__ = ("chat",)
