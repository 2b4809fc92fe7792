"""Handlers of requests to the master: one file for each conversation of api/rpc, and their table."""
