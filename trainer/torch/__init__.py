"""The public API for training scripts: `from elasticjob.trainer.torch import Elastic`."""

from elasticjob.trainer.torch.elastic import Elastic as Elastic
from elasticjob.trainer.torch.link import Stopped as Stopped

__all__ = ["Elastic", "Stopped"]
