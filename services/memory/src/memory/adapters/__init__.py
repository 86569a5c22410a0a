"""Adapters: what touches Postgres."""
