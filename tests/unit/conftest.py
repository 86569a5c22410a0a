"""Property tests: on a busy machine the time of one example says nothing."""

from hypothesis import settings

settings.register_profile("posthouse", deadline=None)
settings.load_profile("posthouse")
