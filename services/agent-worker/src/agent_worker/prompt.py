"""The system message: the prompt of a role, and what else a run must know from the start."""

from collections.abc import Mapping

from agent_worker.llm.client import Message

WORKSPACE_ROOT = "workspace_root"
_MAX_DIRECTORY = 300


def system_message(prompt: str, workspace_root: str = "") -> Message:
    """The leading message of every prompt; never stored in the history."""
    content = prompt
    if workspace_root:
        content += f"\n\nWorking directory: {workspace_root}"
    return {"role": "system", "content": content}


def directory(metadata: Mapping[str, str], own: str = "") -> str:
    """The working directory that the sender names, else ``own``.

    It is a word in the prompt and nothing more: tools stay where they are.
    """
    named = metadata.get(WORKSPACE_ROOT, "")
    fits = named.startswith("/") and named.isprintable() and len(named) <= _MAX_DIRECTORY
    return named if fits else own
