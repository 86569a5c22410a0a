"""Stands in for the service of this name."""

import sys

from tests.support.standins.standin import serve, trace

if sys.argv[1:] == ["migrate"]:
    trace("migrate")
else:
    serve("memory")
