"""The part of a training that outlives its pods, as far as the status of its job tells; pure.

A job of an older master tells of no checkpoint, and neither does a script that writes its own.
"""

from __future__ import annotations

from elasticjob.api.v1alpha1.elasticjob import ElasticJob

OWN = "unless its script writes and reads its own"


def loss(job: ElasticJob) -> str:
    """Return in a sentence what ends with a job's pods; empty before it has trained, or with a checkpoint."""
    training = job.status.training
    if training is None or not (training.step or training.round):
        return ""
    if training.checkpoint_step is not None or training.checkpoint_memory_step is not None:
        return ""
    steps = f", and its {training.step:,} steps are lost" if training.step else ""
    return f"no checkpoint of the job is known: {OWN}, it begins again{steps}"


def outlook(job: ElasticJob) -> str:
    """Return in a sentence where a job goes on in new pods; empty before it has trained."""
    training = job.status.training
    if training is None:
        return ""
    if training.checkpoint_step is not None:
        return f"it goes on from its newest checkpoint: step {training.checkpoint_step:,} or later"
    if training.checkpoint_memory_step is not None:
        return (
            f"its progress is saved when it is suspended: step {training.checkpoint_memory_step:,} or later"
        )
    return loss(job)
