"""Tests of extender/verbs."""
