"""Tests of extender/doctor."""
