"""Tests of extender/kube."""
