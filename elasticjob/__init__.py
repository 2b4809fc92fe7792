"""Elastic distributed training on Kubernetes: operator, job master, trainer and a cluster for laptops."""

__version__ = "0.1.0"
