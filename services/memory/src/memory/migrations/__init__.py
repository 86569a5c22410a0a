"""The schema's history. Apart from ``memory.migrate``, which takes a second to import."""

# The revision that this version of the service needs.
HEAD = "0001"
