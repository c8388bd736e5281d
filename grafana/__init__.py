"""Dashboards, rules and pictures for Grafana and Prometheus; `grafana.generate` writes what is generated of them."""
