"""The agent's observations of its workers and its machine."""
