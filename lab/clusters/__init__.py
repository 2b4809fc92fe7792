"""A real Kubernetes on this machine: its binaries, a control plane on loopback, a whole node."""
