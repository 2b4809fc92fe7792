"""Each framework: what agents and scripts read of its environment, and which jobs admission refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from elasticjob.api.rpc.environment import MODULES
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.frameworks import FRAMEWORKS, Framework, framework_of
from lab.build.jobs import job, role

SERVERS = "ParameterServerStrategy"
ROLES = {
    "AllreduceStrategy": {"worker": role(2), "evaluator": role(1)},
    SERVERS: {"ps": role(1), "chief": role(1), "worker": role(2)},
    "CustomStrategy": {"worker": role(2)},
    "Local": {"worker": role(1)},
}


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("strategy", ROLES)
def test_a_framework_has_variables_and_sentences(name: str, strategy: str) -> None:
    annotated = {"annotations": {names.FRAMEWORK: name}}
    made = job(roles=ROLES[strategy], distributionStrategy=strategy, metadata=annotated)
    framework = framework_of(made)
    assert framework is FRAMEWORKS[name]
    for each in made.spec.roles:
        for index in (0, 1, 11):
            variables = framework.environment(made, each, index)
            assert all(re.fullmatch("[A-Z_][A-Z0-9_]*", variable) for variable in variables)
            assert all(str.isprintable(value) for value in variables.values())
            modules = variables.get(MODULES, "os").split(",")
            assert all(module.replace(".", "").isidentifier() for module in modules)
    for problem in framework.check(made.spec):
        assert problem.path.startswith("spec.")
        assert problem.message


JAX, PYTORCH, TENSORFLOW = (FRAMEWORKS[name] for name in ("jax", "pytorch", "tensorflow"))
PLAIN = {"ps": role(2), "worker": role(3)}
RENDEZVOUS = {
    "PET_NNODES": "1:4",
    "PET_RDZV_BACKEND": "elasticjob",
    "PET_RDZV_ENDPOINT": "$(ELASTICJOB_MASTER)",
    "PET_RDZV_ID": "digits",
}


def at(role: str, *indices: int) -> list[str]:
    return [f"digits-{role}-{index}.digits:2222" for index in indices]


def task(type_: str, index: int, **cluster: list[str]) -> dict[str, Any]:
    """What a task of TensorFlow is told: its place, and where each is as the job begins."""
    return {
        MODULES: "tensorflow",
        "TF_CONFIG": {"cluster": cluster, "task": {"type": type_, "index": index}},
    }


def of_servers(**more: Any) -> ElasticJob:
    return job({**PLAIN, **more}, distributionStrategy=SERVERS)


@pytest.mark.parametrize(
    ("framework", "given", "node", "told"),
    [
        (JAX, job(), ("worker", 0), {MODULES: "jax,jax.numpy"}),
        (PYTORCH, job({"worker": role(2, minReplicas=1, maxReplicas=4)}), ("worker", 0), RENDEZVOUS),
        (PYTORCH, job(distributionStrategy="Local"), ("worker", 0), {}),
        (TENSORFLOW, of_servers(), ("worker", 0),
         task("chief", 0, chief=at("worker", 0), ps=at("ps", 0, 1), worker=at("worker", 1, 2))),
        (TENSORFLOW, of_servers(), ("worker", 3),  # of a later size
         task("worker", 2, chief=at("worker", 0), ps=at("ps", 0, 1), worker=at("worker", 1, 2, 3))),
        (TENSORFLOW, of_servers(), ("ps", 2),
         task("ps", 2, chief=at("worker", 0), ps=at("ps", 0, 1, 2), worker=at("worker", 1, 2))),
        (TENSORFLOW, of_servers(chief=role(1), evaluator=role(1)), ("worker", 0),
         task("worker", 0, chief=at("chief", 0), ps=at("ps", 0, 1), worker=at("worker", 0, 1, 2))),
        (TENSORFLOW, of_servers(evaluator=role(1), worker=role(None, minReplicas=1)), ("evaluator", 0),
         task("evaluator", 0, chief=at("worker", 0), ps=at("ps", 0, 1), worker=[])),
        (TENSORFLOW, job({"worker": role(1), "reader": role(1)}), ("reader", 0), {MODULES: "tensorflow"}),
    ],
)  # fmt: skip
def test_what_a_node_is_told(
    framework: Framework, given: ElasticJob, node: tuple[str, int], told: dict[str, Any]
) -> None:
    found: dict[str, Any] = {**framework.environment(given, *node)}
    if "TF_CONFIG" in found:
        found["TF_CONFIG"] = json.loads(found["TF_CONFIG"])
    assert found == told


SUMMED = job(PLAIN, distributionStrategy="AllreduceStrategy")
NO_ROLE = (
    "spec.replicaSpecs.ps: JAX has no parameter servers: leave out the role ps, or the framework's annotation"
)
NO_STRATEGY = (
    "spec.distributionStrategy: JAX trains by AllreduceStrategy: use it, or leave out the framework's"
    " annotation"
)
NO_SERVERS = (
    "spec.distributionStrategy: ParameterServerStrategy needs the role ps: add it, or use AllreduceStrategy"
)
NEEDS_SERVERS = (
    "spec.distributionStrategy: TensorFlow's role ps needs ParameterServerStrategy, which is not"
    " AllreduceStrategy: write it, or leave out the role"
)


@pytest.mark.parametrize(
    ("framework", "given", "problem"),
    [
        (JAX, job(), ""),
        (JAX, SUMMED, NO_ROLE),
        (JAX, of_servers(), NO_STRATEGY),
        (PYTORCH, job(), ""),
        (TENSORFLOW, of_servers(), ""),
        (TENSORFLOW, job(), ""),
        (TENSORFLOW, SUMMED, NEEDS_SERVERS),
        (TENSORFLOW, job(distributionStrategy=SERVERS), NO_SERVERS),
    ],
)
def test_a_job_that_cannot_train_is_refused(framework: Framework, given: ElasticJob, problem: str) -> None:
    assert "".join(map(str, framework.check(given.spec))) == problem
