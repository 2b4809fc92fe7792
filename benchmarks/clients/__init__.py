"""Clients of the Kubernetes API side by side: cache, watch and reconcile figures."""
