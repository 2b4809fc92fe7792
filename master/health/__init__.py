"""Health of nodes: hangs, stragglers, checks before training, and the verdict on the job."""
