"""Outbound messages to the platforms: in order, once, by any number of replicas (R17).

``decision.py`` decides from the record of a conversation and a message what to do next;
``record.py`` is that record; ``courier.py`` does it; ``rounds.py`` feeds the couriers.
"""
