"""Tests of extender/simulator/scenario."""
