"""Scenario files and their runs: cluster, steps, injected faults, and the report."""
