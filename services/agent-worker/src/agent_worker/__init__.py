"""The agent engine: turns, orchestration, tools and model clients."""
