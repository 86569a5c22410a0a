"""The one way out to addresses that somebody else chose: what may be called, and who calls it.

A private address must not be reached by naming it: not as a literal in any spelling, not by a name
that resolves to it, not by a name that resolves to it only after it was checked, and not by a
redirect.
"""
