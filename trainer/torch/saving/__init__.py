"""State dicts in shared memory: taken apart, written, read again for another number of workers."""
