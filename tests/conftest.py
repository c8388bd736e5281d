"""Fixtures that several floors share. Builders of pods and nodes, and the stand-ins for feeds, live beside it."""
