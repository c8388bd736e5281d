"""Pods per domain: topology, groups, selections, and the compiled constraints that read them."""
