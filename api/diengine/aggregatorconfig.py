"""AggregatorConfig: how aggregators are made, for all jobs of a cluster or of a namespace."""

from __future__ import annotations

from typing import Final

from elasticjob.api.diengine.dijob import ReplicaTemplate
from elasticjob.api.diengine.names import GROUP, VERSION
from elasticjob.kube.crd.model import Column, CustomResource, Declaration, Part
from elasticjob.kube.objects.kinds import Kind


class AggregatorConfigSpec(Part):
    """How aggregators are made."""

    aggregator: ReplicaTemplate
    """The pod that stands for the ddp learners of one logic learner."""


class AggregatorConfigStatus(Part):
    """There is nothing to observe."""


class AggregatorConfig(CustomResource):
    """The template of aggregators."""

    spec: AggregatorConfigSpec
    """How aggregators are made."""

    status: AggregatorConfigStatus = AggregatorConfigStatus()
    """Empty."""


AGGREGATORCONFIG: Final = Kind(GROUP, VERSION, "AggregatorConfig", "aggregatorconfigs", AggregatorConfig)

DECLARATION: Final = Declaration(
    AGGREGATORCONFIG,
    short_names=("agconfig",),
    categories=("training",),
    columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
)
