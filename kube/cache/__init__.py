"""Caches that follow the API server: informer, list and watch protocol, store."""
