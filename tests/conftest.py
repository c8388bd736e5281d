"""Fixtures that several floors share. Builders of pods and nodes, and the stand-ins for feeds, live beside it.

Laws run with a bounded, repeatable profile. More examples: `pytest tests/laws --hypothesis-profile=thorough --timeout=0`.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "bounded",
    max_examples=60,
    derandomize=True,
    deadline=None,  # a shared machine is slow at times; no law is about time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("bounded"), max_examples=2000, derandomize=False)
settings.load_profile("bounded")
