"""Planning across all jobs of a cluster: which jobs grow, which shrink, which wait. Pure."""
