"""Tests of extender/simulator."""
