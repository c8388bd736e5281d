"""Tests of extender/simulate."""
