"""The page of the cluster: what is read, what people see of it, and the files that draw it."""
