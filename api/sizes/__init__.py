"""Sizes of jobs: the range of a role, the resources that a job needs, a change, and the facts behind it."""
