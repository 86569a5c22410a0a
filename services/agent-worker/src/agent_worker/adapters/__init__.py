"""Adapters: what touches NATS."""
