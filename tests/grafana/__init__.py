"""What stands in grafana/: dashboards, rules, alerts and the runbook, held against the metrics of the service.

The dashboards' JSON and the table of metrics are written by `python -m tests.grafana` from the description here; users
take the files as they are. `test_prometheus` needs the `prometheus` package of Debian.
"""
