"""Tests of extender/compose."""
