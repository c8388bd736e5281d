"""Tests of what keeps the admission webhook reachable, against the embedded API server."""
