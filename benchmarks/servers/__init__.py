"""How long training stands still when parameter servers change: `python -m benchmarks.servers --mb 100`."""
