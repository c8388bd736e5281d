"""Pods per domain: signatures, groups, selections, and the compiled constraints that read them."""
