"""TensorFlow: parameter servers that change (`Servers`), and shards by way of `tf.data` (`shard_dataset`).

`export` writes a SavedModel. Importing anything but `shard_dataset` turns eager execution off in the process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from elasticjob.trainer.tensorflow.estimator import EstimatorSpec as EstimatorSpec
    from elasticjob.trainer.tensorflow.estimator import ModeKeys as ModeKeys
    from elasticjob.trainer.tensorflow.estimator import from_model_fn as from_model_fn
    from elasticjob.trainer.tensorflow.estimator import predict_of as predict_of
    from elasticjob.trainer.tensorflow.graph import Step as Step
    from elasticjob.trainer.tensorflow.records import shard_dataset as shard_dataset
    from elasticjob.trainer.tensorflow.saved_model import export as export
    from elasticjob.trainer.tensorflow.servers import Servers as Servers

__all__ = [
    "EstimatorSpec",
    "ModeKeys",
    "Servers",
    "Step",
    "export",
    "from_model_fn",
    "predict_of",
    "shard_dataset",
]

HOMES: Final = {
    "EstimatorSpec": "estimator",
    "ModeKeys": "estimator",
    "Servers": "servers",
    "Step": "graph",
    "export": "saved_model",
    "from_model_fn": "estimator",
    "predict_of": "estimator",
    "shard_dataset": "records",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: each needs another TensorFlow, with eager execution or without."""
    if name not in HOMES:
        raise AttributeError(f"elasticjob.trainer.tensorflow has no {name}: it has {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
