"""The system message: the prompt of a role, and what else a run must know from the start."""

from agent_worker.llm.client import Message


def system_message(prompt: str, workspace_root: str = "") -> Message:
    """The leading message of every prompt; never stored in the history."""
    content = prompt
    if workspace_root:
        content += f"\n\nWorking directory: {workspace_root}"
    return {"role": "system", "content": content}
