"""The worker processes of a node: their environment, start, output and end."""
