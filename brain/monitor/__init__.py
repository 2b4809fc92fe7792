"""The cluster monitor: what the cluster has, and what its jobs use, into the database."""
