"""A job, its nodes and its cluster in virtual time, in which the real optimizers and managers run.

`physics.py` says how fast a job is and what it uses, `world.py` is the cluster around it, `policies.py`
decides sizes: ours, fixed ones, and the peer's rules as documented. `rows.py` are the situations.
"""
