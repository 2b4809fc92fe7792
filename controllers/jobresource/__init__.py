"""JobResource → pods: which nodes there are, and what becomes of each."""
