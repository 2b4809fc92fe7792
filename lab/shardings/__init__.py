"""Random shardings, saved and loaded by the same or by another one: `make shardings`."""
