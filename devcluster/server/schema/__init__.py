"""Values against schemas: validation, defaulting, pruning, ratcheting, CEL rules."""
