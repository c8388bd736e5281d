"""Measures decisions on synthetic clusters of a given size, with requests as kube-scheduler sends them.

Scenario files set the workload and the bounds. The command line passes in the service that is measured, which is the one
that `extender serve` runs.
"""
