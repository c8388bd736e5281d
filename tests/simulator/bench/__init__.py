"""Tests of extender/simulator/bench."""
