"""Reconciling: the controller, its queue, and the predicates that filter changes."""
