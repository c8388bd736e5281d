"""Tests of extender/simulator/apiserver."""
