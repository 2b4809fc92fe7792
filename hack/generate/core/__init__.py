"""Kubernetes' own types: the documents in api/core, and the models made of them."""
