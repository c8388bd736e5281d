"""Tests of extender/index."""
