"""The test bench around the product, not in the wheel: clusters, programs, jobs, troubles, truths."""
