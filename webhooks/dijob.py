"""The webhooks of DIJobs and AggregatorConfigs: checks, and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG, AggregatorConfig
from elasticjob.api.diengine.checks import config_problems, problems, template_advice, templates, warnings
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import JsonPatchOperation, Review, Webhook
from elasticjob.webhooks.belongings import guard
from elasticjob.webhooks.repeated import refuse_repeated


def mutate(review: Review[DIJob]) -> Sequence[JsonPatchOperation]:
    """Change nothing. Raises Refusal for members of templates that are there twice."""
    if review.new is not None:
        refuse_repeated(dict(templates(review.new)), dict(templates(review.old)) if review.old else {})
    return ()


def validate(review: Review[DIJob]) -> Sequence[Problem]:
    """Return the problems of a job that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


def warn(review: Review[DIJob]) -> Sequence[str]:
    """Return a sentence for each thing that is accepted and has not the effect that it seems to have."""
    if review.new is None or problems(review.new, review.old):
        return ()
    return warnings(review.new, review.old)


def validate_config(review: Review[AggregatorConfig]) -> Sequence[Problem]:
    """Return the problems of an AggregatorConfig that is created or updated."""
    return config_problems(review.new, review.old) if review.new is not None else ()


def warn_config(review: Review[AggregatorConfig]) -> Sequence[str]:
    """Return a sentence for each thing that is accepted without effect."""
    if review.new is None or config_problems(review.new):
        return ()
    return [
        str(each) for each in template_advice("spec.aggregator.template", review.new.spec.aggregator.template)
    ]


WEBHOOK = Webhook(DIJOB, mutate=mutate, validate=guard(validate), warn=warn)
CONFIG_WEBHOOK = Webhook(AGGREGATORCONFIG, validate=guard(validate_config), warn=warn_config)
