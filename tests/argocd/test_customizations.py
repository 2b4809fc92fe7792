"""The health checks and actions for Argo CD, on objects that were exported from a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.crds import DECLARATIONS
from elasticjob.api.diengine.dijob import DIJobPhase
from elasticjob.api.paddle.trainingjob import TrainingJobPhase
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from tests.argocd.upstream import CUSTOMIZATIONS, LuaError, acted, discovered, health, read

HEALTH = sorted(CUSTOMIZATIONS.glob("*/*/health_test.yaml"))
ACTIONS = sorted(CUSTOMIZATIONS.glob("*/*/actions/action_test.yaml"))
PHASES: dict[str, type[StrEnum]] = {
    "ElasticJob": Phase,
    "ScalePlan": PlanPhase,
    "TrainingJob": TrainingJobPhase,
    "DIJob": DIJobPhase,
}


def rows(files: list[Path], part: str) -> list[Any]:
    return list(_rows(files, part))


def _rows(files: list[Path], part: str) -> Iterator[Any]:
    for file in files:
        kind = next(each for each in file.parts[::-1] if each[0].isupper())
        for row in read(file).get(part) or ():
            name = "-".join((kind, row.get("action", ""), Path(row["inputPath"]).stem))
            yield pytest.param(file.parent, row, id=name)


@pytest.mark.parametrize(("folder", "row"), rows(HEALTH, "tests"))
def test_an_object_has_the_health_that_is_written_beside_it(folder: Path, row: Manifest) -> None:
    assert health(read(folder / row["inputPath"])) == row["healthStatus"]


def test_each_kind_of_ours_has_a_health_and_each_fixture_a_line() -> None:
    ours = {(each.kind.group, each.kind.name) for each in DECLARATIONS}
    assert {(file.parent.parent.name, file.parent.name) for file in HEALTH} == ours
    for file in HEALTH:
        told = {row["inputPath"] for row in read(file)["tests"]}
        assert told == {f"testdata/{each.name}" for each in (file.parent / "testdata").iterdir()}


@pytest.mark.parametrize("file", HEALTH, ids=lambda file: file.parent.name)
def test_each_phase_of_a_kind_has_a_fixture(file: Path) -> None:
    found = {
        (read(file.parent / row["inputPath"]).get("status") or {}).get("phase") for row in read(file)["tests"]
    }
    assert {*PHASES.get(file.parent.name, ())} <= found


@pytest.mark.parametrize(("folder", "row"), rows(ACTIONS, "discoveryTests"))
def test_an_object_offers_the_actions_that_make_sense(folder: Path, row: Manifest) -> None:
    offered = discovered(read(folder / row["inputPath"]))
    assert offered == {
        each["name"]: {field: value for field, value in each.items() if field != "name"}
        for each in row["result"]
    }


@pytest.mark.parametrize(("folder", "row"), rows(ACTIONS, "actionTests"))
def test_an_action_changes_what_it_says(folder: Path, row: Manifest) -> None:
    before, parameters = read(folder / row["inputPath"]), row.get("parameters")
    if message := row.get("expectedErrorMessage"):
        with pytest.raises(LuaError) as raised:
            acted(before, row["action"], parameters)
        assert str(raised.value) == message
        return
    assert acted(before, row["action"], parameters) == [read(folder / row["expectedOutputPath"])]


def test_each_action_that_is_offered_has_a_script_and_a_test() -> None:
    for file in ACTIONS:
        tests = read(file)
        offered = {each["name"] for row in tests["discoveryTests"] for each in row["result"]}
        scripts = {each.parent.name for each in file.parent.glob("*/action.lua")}
        assert offered == scripts == {row["action"] for row in tests["actionTests"]}


FAILED: Manifest = {"conditions": [{"type": "Failed", "status": "True"}], "observedGeneration": 1}


def retried(annotations: Manifest | None = None, **spec: Any) -> Manifest:
    job = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": "train", "namespace": "team", "uid": "1", "annotations": annotations or {}},
        "spec": {"suspend": False, **spec},
        "status": FAILED,
    }
    (made,) = acted(job, "retry")
    return made


def test_a_retried_job_in_the_easydl_form_keeps_roles_that_say_nothing() -> None:
    made = retried(image="a", command="python x.py", parameter_server={}, worker={})
    assert problems(ELASTICJOB.convert(made)) == []
    assert set(ELASTICJOB.convert(made).spec.roles) == {"ps", "worker"}


def test_a_retried_job_has_no_list_in_the_place_of_an_empty_object() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    main = {"name": "main", "image": "a", "resources": {"limits": {}, "requests": {}}, "args": []}
    pod = {"containers": [main], "affinity": affinity, "tolerations": [{}, {"key": "a"}]}
    template = {"metadata": {"annotations": {}}, "spec": pod | {"volumes": [{"name": "v", "emptyDir": {}}]}}
    worker = retried(replicaSpecs={"worker": {"replicas": 1, "template": template}})["spec"]["replicaSpecs"][
        "worker"
    ]
    everything: Manifest = {"matchExpressions": []}
    kept = {"topologyKey": "zone", "labelSelector": everything, "namespaceSelector": everything}
    assert worker["template"] == {
        "spec": {
            "containers": [{"name": "main", "image": "a"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [kept]}},
            "tolerations": [{"key": "a"}],
            "volumes": [{"name": "v", "emptyDir": {"medium": ""}}],
        }
    }


def test_a_retried_job_outlives_one_that_is_deleted_after_its_end() -> None:
    worker = {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}}
    assert retried(replicaSpecs=worker)["metadata"]["ownerReferences"]
    made = retried(replicaSpecs=worker, runPolicy={"ttlSecondsAfterFinished": 60})
    assert "ownerReferences" not in made["metadata"]
    assert made["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 60}


def test_a_retried_job_keeps_its_framework() -> None:
    made = retried({names.FRAMEWORK: "jax", "argocd.argoproj.io/tracking-id": "git"}, worker={})
    assert made["metadata"]["annotations"] == {
        names.FRAMEWORK: "jax",
        "elasticjob.dlrover/retry": "1",
        "elasticjob.dlrover/retry-of": "train",
    }
