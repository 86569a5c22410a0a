"""A model made of rules: acts on plain commands in English and Chinese with the offered tools.

A pure function of (messages, tools): the same history gives the same answer, so restart and
replay can be tested. It never improvises prose.
"""

from agent_worker.llm.rules.conversation import Fallback, answer

__all__ = ("Fallback", "answer")
