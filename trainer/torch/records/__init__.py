"""Which records each worker reads in each step."""
