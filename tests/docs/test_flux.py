"""The health expressions of examples/flux, on jobs that were exported from a cluster."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from elasticjob.devcluster.server.schema.expressions import NoValue, compile_rule
from lab.paths import ROOT

PREPARE, TRAIN = yaml.safe_load_all((ROOT / "examples" / "flux" / "jobs.yaml").read_text())
JOBS: Final = ROOT / "config/argocd/resource_customizations/elastic.iml.github.io/ElasticJob/testdata"
PARTS: Final = ("metadata", "spec", "status")


@pytest.mark.parametrize(
    ("names", "prepare", "train"),
    [
        ("unseen created pending behind restarting", "", ""),
        ("running scaling suspended queued", "", "current"),
        ("succeeded", "current", "current"),
        ("failed", "failed", "failed"),
    ],
)
def test_flux_waits_for_the_end_of_one_job_and_for_the_start_of_others(
    names: str, prepare: str, train: str
) -> None:
    for job in (yaml.safe_load((JOBS / f"{name}.yaml").read_text()) for name in names.split()):
        assert (health(PREPARE, job), health(TRAIN, job)) == (prepare, train), job["metadata"]["name"]


def health(kustomization: Any, job: Any) -> str:
    """Return which expression holds, "" for none: Flux waits then."""
    [check] = kustomization["spec"]["healthCheckExprs"]
    return " ".join(word for word in ("current", "failed") if _holds(check[word], job))


def _holds(text: str, job: Any) -> bool:
    try:
        return bool(compile_rule(text, *PARTS).evaluate({part: job.get(part, {}) for part in PARTS}))
    except NoValue:  # a field that is not there yet
        return False
