"""Stands in for the service of this name."""

from standin import serve

serve("gateway")
