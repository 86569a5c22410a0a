"""Schedules, kept and fired by JetStream."""
