"""Names of metrics and the form of log lines. The only place that imports the Prometheus client.

Imports no other floor, measures nothing by itself: the floors above call it, the floors below never see it.
"""
