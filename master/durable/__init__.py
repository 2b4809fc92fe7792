"""State that outlives a master: snapshots, their format, and the succession of masters."""
