"""Ours and others' jobs in one cluster that Kueue shares out, side by side."""
