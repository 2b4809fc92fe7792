"""The process's own HTTP servers: /healthz, /readyz, /metrics, and what webhooks are served with."""
