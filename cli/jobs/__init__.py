"""Shared by commands about jobs: the connection to the cluster, tables, completion, what is followed."""
