"""Planning across all jobs of a cluster: who grows, who gives way, who waits. Pure."""
