"""Tests of certificates as values."""
