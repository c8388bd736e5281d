"""Tests of extender/telemetry."""
