"""Tests of extender/wire."""
