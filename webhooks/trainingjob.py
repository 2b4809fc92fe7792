"""The webhook of TrainingJobs: validates, and warns of what means something else than in EDL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elasticjob.api.paddle.convert import notes, problems, what_waits
from elasticjob.api.paddle.trainingjob import TRAININGJOB, TrainingJob
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import Review, Webhook
from elasticjob.webhooks.belongings import guard

CONVERT: Final = (
    "elasticjob convert makes an ElasticJob of this manifest, and says what becomes of each field"
)


def validate(review: Review[TrainingJob]) -> Sequence[Problem]:
    """Return the problems of a TrainingJob that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


def warn(review: Review[TrainingJob]) -> Sequence[str]:
    """Return a sentence for each thing that is accepted without effect."""
    if review.new is None or problems(review.new, review.old):
        return ()
    found = [str(each) for each in notes(review.new)]
    waits = what_waits(review.new, review.old) if review.old is not None else ()
    return [*map(str, waits), *found, *([CONVERT] if found else [])]


WEBHOOK = Webhook(TRAININGJOB, validate=guard(validate), warn=warn)
