"""The agent: one per training pod. It starts the workers and represents them at the master.

`group` is the state, `decide` the decisions, `loop` and `shell` the I/O.
"""
