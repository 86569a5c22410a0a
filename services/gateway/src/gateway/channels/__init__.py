"""Platforms, one file each. A file with ``build(settings, egress)`` is found by itself."""
