"""Platforms, one file each. A file with ``build(settings)`` is found by itself."""
