"""Modules that agents of a JAX job import in advance, and JAX jobs that admission refuses."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.rpc.environment import MODULES
from elasticjob.controllers.parts.frameworks import FRAMEWORKS
from lab.build.jobs import job, role

JAX = FRAMEWORKS["jax"]


def test_agents_import_jax_once() -> None:
    assert JAX.environment(job(roles={"worker": role(2)}), "worker", 0) == {MODULES: "jax,jax.numpy"}


@pytest.mark.parametrize(
    ("strategy", "roles", "field"),
    [
        ("AllreduceStrategy", {"worker": role(2)}, []),
        ("AllreduceStrategy", {"worker": role(2), "ps": role(1)}, ["spec.replicaSpecs.ps"]),
        ("ParameterServerStrategy", {"worker": role(2), "ps": role(1)}, ["spec.distributionStrategy"]),
    ],
)
def test_parameter_servers_are_refused(strategy: str, roles: dict[str, Any], field: list[str]) -> None:
    spec = job(roles=roles, distributionStrategy=strategy).spec
    assert [problem.path for problem in JAX.check(spec)] == field
