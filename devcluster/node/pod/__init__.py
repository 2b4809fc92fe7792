"""What the kubelet does next for a pod, and what its status says. Pure."""
