"""The shipped examples with a job.yaml, as a user applies them, but shorter: each succeeds, and no pod fails.

The demo has that of digits; of the one for TensorFlow `test_tensorflow` has the script.
"""

from __future__ import annotations

import pytest

from elasticjob.cli.story.example import load
from lab.jobs.job import Job
from lab.jobs.site import Site
from lab.paths import EXAMPLES

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("jax", "--epochs 10 --checkpoint /checkpoints"),
        ("parameters", "--records 20000 --epochs 1"),
        ("keras", "--records 20000 --epochs 1"),
    ],
)
async def test_an_example_succeeds_and_no_pod_fails(site: Site, name: str, arguments: str) -> None:
    example = load(EXAMPLES / name / "job.yaml")
    example.job["metadata"]["namespace"] = site.namespace
    job = Job(site, example.key.name)
    example.workers["template"]["spec"]["containers"][0]["args"] = arguments.split()
    await example.apply(site.client, "kubectl")
    await site.until(job.has_ended("Complete"))
    assert not job.status.restarts
    roles = example.job["spec"]["replicaSpecs"]
    assert job.born.keys() - {"master-0"} == {
        f"{role}-{index}" for role, spec in roles.items() for index in range(spec["replicas"])
    }
