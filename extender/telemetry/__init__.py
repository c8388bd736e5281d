"""Declares the metrics and formats log lines. The only package that imports the Prometheus client.

Imports no other package of the extender. The floors above call it; those below do not know it.
"""
