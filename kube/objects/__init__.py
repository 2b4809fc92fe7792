"""Kubernetes objects: kinds and keys, typed views, owner references, conditions, problems."""
