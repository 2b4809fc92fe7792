"""A whole cluster on this machine, with the operator beside it."""
