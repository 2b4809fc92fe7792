"""Servers of ours under load: master, Brain, di-server, the operator with a thousand jobs."""
