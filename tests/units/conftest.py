"""Laws are checked without a time limit per example: a busy machine must not fail them."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
