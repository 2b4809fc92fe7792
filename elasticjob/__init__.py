"""Elastic distributed training on Kubernetes: operator, job master, trainer and a cluster for laptops."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["LaunchFailed", "__version__", "launch"]


def __getattr__(name: str) -> Any:
    """Return `launch` or `LaunchFailed`, whose module is imported when it is asked for."""
    if name in ("launch", "LaunchFailed"):
        from importlib import import_module

        return getattr(import_module("elasticjob.trainer.launch"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
