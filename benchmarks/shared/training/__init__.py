"""Real training on a real node: the same faults with jobs of ours and of Kubeflow Trainer."""
