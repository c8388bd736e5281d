"""Tests of extender/features."""
