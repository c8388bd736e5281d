"""Tests of extender/server."""
