"""Clients that load the peers' masters; each runs in the peer's own environment."""
