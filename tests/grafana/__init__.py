"""What stands in grafana/: dashboards, rules, alerts and the runbook, held against the metrics of the service.

`test_prometheus` needs the `prometheus` package of Debian.
"""
