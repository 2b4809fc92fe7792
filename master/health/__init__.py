"""Which nodes are well: hangs, stragglers, checks before training, and the verdict on the job."""
