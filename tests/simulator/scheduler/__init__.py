"""Tests of extender/simulator/scheduler."""
