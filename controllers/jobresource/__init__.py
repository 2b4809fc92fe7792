"""JobResource → pods: which nodes there are, and how each is replaced."""
