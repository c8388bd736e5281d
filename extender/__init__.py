"""The placement extender: answers kube-scheduler's filter, prioritize and preempt calls from counts kept true by watches.

The floors, from high to low: cli, then tasks, server and simulator (independent of each other), kube, telemetry,
verbs, rules, wire and index (independent), settings, model. An import goes down, never up; the contracts in
pyproject.toml hold that, so every package is imported by its full name and re-exports nothing.
"""
