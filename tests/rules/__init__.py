"""Tests of extender/rules."""
