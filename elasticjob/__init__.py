"""Elastic distributed training on Kubernetes: operator, job master, trainer and a cluster for laptops."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "launch"]


def __getattr__(name: str) -> Any:
    """Return `launch`, whose module is imported when it is asked for."""
    if name == "launch":
        from importlib import import_module

        return import_module("elasticjob.trainer.launch").launch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
