"""What the pods of a TensorFlow job are told, and which jobs are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticjob.controllers.parts.frameworks import FRAMEWORKS
from lab.build.jobs import job, role

TENSORFLOW = FRAMEWORKS["tensorflow"]
SERVERS = "ParameterServerStrategy"
PLAIN = {"ps": role(2), "worker": role(3)}


def at(role: str, *indices: int) -> list[str]:
    return [f"digits-{role}-{index}.digits:2222" for index in indices]


@pytest.mark.parametrize(
    ("roles", "node", "task", "cluster"),
    [
        (PLAIN, ("worker", 0), ("chief", 0),
         {"chief": at("worker", 0), "ps": at("ps", 0, 1), "worker": at("worker", 1, 2)}),
        (PLAIN, ("worker", 3), ("worker", 2),
         {"chief": at("worker", 0), "ps": at("ps", 0, 1), "worker": at("worker", 1, 2, 3)}),
        (PLAIN, ("ps", 2), ("ps", 2),
         {"chief": at("worker", 0), "ps": at("ps", 0, 1, 2), "worker": at("worker", 1, 2)}),
        ({"chief": role(1), "evaluator": role(1), **PLAIN}, ("worker", 0), ("worker", 0),
         {"chief": at("chief", 0), "ps": at("ps", 0, 1), "worker": at("worker", 0, 1, 2)}),
        ({"evaluator": role(1), "ps": role(1), "worker": role(None, minReplicas=1)}, ("evaluator", 0),
         ("evaluator", 0), {"chief": at("worker", 0), "ps": at("ps", 0), "worker": []}),
    ],
    ids=["first worker", "worker of a later size", "server of a later size", "chief of its own", "evaluator"],
)  # fmt: skip
def test_scripts_find_the_cluster_as_it_began(
    roles: dict[str, Any], node: tuple[str, int], task: tuple[str, int], cluster: dict[str, list[str]]
) -> None:
    environment = TENSORFLOW.environment(job(roles, distributionStrategy=SERVERS), *node)
    expected = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
    assert json.loads(environment["TF_CONFIG"]) == expected
    assert environment["ELASTICJOB_MODULES"] == "tensorflow"


def test_a_role_of_the_users_own_has_no_place_in_the_cluster() -> None:
    asked = job({"worker": role(1), "reader": role(1)})
    assert "TF_CONFIG" not in TENSORFLOW.environment(asked, "reader", 0)


@pytest.mark.parametrize(
    ("strategy", "roles", "problem"),
    [
        (SERVERS, PLAIN, ""),
        ("AllreduceStrategy", {"worker": role(2)}, ""),
        (
            "AllreduceStrategy",
            PLAIN,
            "spec.distributionStrategy: TensorFlow's role ps needs ParameterServerStrategy, which is not"
            " AllreduceStrategy: write it, or leave out the role",
        ),
        (
            SERVERS,
            {"worker": role(2)},
            "spec.distributionStrategy: ParameterServerStrategy needs the role ps: add it,"
            " or use AllreduceStrategy",
        ),
    ],
)
def test_a_job_that_cannot_train_is_refused_with_a_sentence(
    strategy: str, roles: dict[str, Any], problem: str
) -> None:
    asked = job(roles, distributionStrategy=strategy)
    assert "".join(map(str, TENSORFLOW.check(asked.spec))) == problem
