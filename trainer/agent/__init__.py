"""The agent: one per training pod. It starts the workers, speaks for them to the master, and outlives none of
them.

`group` says what is true, `decide` what to do about it, `loop` does it.
"""
