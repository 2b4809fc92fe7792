"""Many jobs on one cluster, in virtual time: planners of the whole cluster beside published results."""
