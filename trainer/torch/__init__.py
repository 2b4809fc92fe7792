"""The public API for training scripts: `from elasticjob.trainer.torch import Elastic`."""

from elasticjob.trainer.link.worlds import Stopped as Stopped
from elasticjob.trainer.torch.elastic import Elastic as Elastic
from elasticjob.trainer.torch.records.data import Loader as Loader
from elasticjob.trainer.torch.records.data import Part as Part
from elasticjob.trainer.torch.state import PerEpoch as PerEpoch
from elasticjob.trainer.torch.step import Step as Step
from elasticjob.trainer.torch.world.unit import node_mesh as node_mesh

__all__ = ["Elastic", "Loader", "Part", "PerEpoch", "Step", "Stopped", "node_mesh"]
