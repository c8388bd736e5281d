"""Tests of extender/simulator/oracle."""
