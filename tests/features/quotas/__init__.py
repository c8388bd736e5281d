"""Tests of extender/features/quotas."""
