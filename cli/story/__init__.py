"""The story of the demo: its acts, the facts that end each of them, and what is observed meanwhile."""
