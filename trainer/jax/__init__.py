"""The public API for training scripts with JAX: `from elasticjob.trainer.jax import Dataset, Elastic`."""

from elasticjob.trainer.jax.elastic import Elastic as Elastic
from elasticjob.trainer.jax.step import Step as Step
from elasticjob.trainer.link.worlds import Stopped as Stopped
from elasticjob.trainer.shards import Dataset as Dataset

__all__ = ["Dataset", "Elastic", "Step", "Stopped"]
