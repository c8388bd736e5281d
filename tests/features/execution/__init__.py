"""Tests of extender/features/execution."""
