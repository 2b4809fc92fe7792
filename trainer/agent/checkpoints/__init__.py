"""Writes checkpoints from shared memory to storage, and commits them with the other nodes."""
