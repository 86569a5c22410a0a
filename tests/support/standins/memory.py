"""Stands in for the service of this name."""

import sys

from standin import serve, trace

if sys.argv[1:] == ["migrate"]:
    trace("migrate")
else:
    serve("memory")
