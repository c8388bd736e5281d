"""Tests of extender/tasks."""
