"""Tests of extender/model."""
