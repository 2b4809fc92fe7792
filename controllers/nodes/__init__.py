"""Rules for one node: how its pod ended, whether it is started again, drains of its machine, and memory."""
