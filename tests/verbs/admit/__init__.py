"""Tests of the admission verb."""
