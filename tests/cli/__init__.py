"""Tests of extender/cli."""
