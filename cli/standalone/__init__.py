"""Training without a cluster: torchrun's flags, the master here or on another node, more nodes beside it."""
