"""Checkpoints in memory for Hugging Face Trainer, Lightning and accelerate; each module needs its package."""
