"""Shipped tools, one file each: a module with ``tools() -> list[Tool]`` counts."""
