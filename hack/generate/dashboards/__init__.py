"""Grafana dashboards as code: one module per dashboard, written to config/grafana as JSON."""
