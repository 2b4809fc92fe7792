"""A whole cluster on this machine, the operator beside it."""
