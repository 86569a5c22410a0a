"""Settings of the property tests."""

from hypothesis import settings

# On a busy machine a time limit for one example fails tests that are right.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
