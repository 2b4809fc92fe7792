"""Checkpoints in memory for the training loops of others: each module but megatron needs its package."""
