"""Checkpoints that are taken in memory and written to storage beside the training; without torch."""
