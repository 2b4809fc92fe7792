"""One rule per file: `propose(facts)` returns a change with its reason, or None (table.py lists them)."""
