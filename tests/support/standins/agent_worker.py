"""Stands in for the service of this name."""

from tests.support.standins.standin import serve

serve("agent_worker")
