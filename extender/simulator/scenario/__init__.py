"""Scenario files and the run of one: cluster, steps, injected faults, and the report of what came of it."""
