"""The pods of DIJobs, row by row of the contract: names, ports, variables, labels, Services, GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.checks import problems, warnings
from elasticjob.api.diengine.gpus import Machine, Split, TooManyPods, fits, majority, split, split_of_release
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Place, Server
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.build.dijobs import dijob
from lab.build.manifests import ABSENT, TEMPLATE, changed

WITH_PORT = changed(TEMPLATE, {"spec/containers/0/ports": [{"name": "di-port", "containerPort": 22270}]})
TWO = [{"name": "di-container", "image": "i"}, {"name": "log", "image": "i", "env": []}]
SIDECAR = changed(TEMPLATE, {"spec/containers": TWO})
SERVER = Server()


def made(role: Role, template: Manifest = TEMPLATE, server: Server = SERVER, **more: Any) -> Manifest:
    return pods.pod(dijob(**more.pop("job", {})), role, f"cartpole-{role}-abcde", server, template, **more)


def variables(pod: Manifest, container: int = 0) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][container]["env"]}


@pytest.mark.parametrize(
    ("role", "variable", "port"),
    [
        (Role.COORDINATOR, "COORDINATOR_PORT", 22273),
        (Role.COLLECTOR, "COLLECTOR_PORT", 22270),
        (Role.LEARNER, "LEARNER_PORT", 22271),
        (Role.DDP_LEARNER, "LEARNER_PORT", 22271),
        (Role.AGGREGATOR, "AGGREGATOR_PORT", 22272),
    ],
)
def test_a_pod_has_its_port_labels_and_variables(role: Role, variable: str, port: int) -> None:
    pod = made(role)
    name = f"cartpole-{role}-abcde"
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "di-port", "containerPort": port}]
    expected = {
        variable: str(port),
        "KUBERNETES_POD_NAMESPACE": "lab",
        "KUBERNETES_POD_NAME": name,
        "KUBERNETES_SERVER_URL": "http://di-server.di-system:8080",
    }
    if role is Role.COORDINATOR:
        expected["KUBERNETES_COORDINATOR_URL"] = f"{name}.lab:{port}"
    assert variables(pod) == expected
    labels = pod["metadata"]["labels"]
    assert {
        "group-name": "diengine.opendilab.org",
        "dijob-name": "cartpole",
        "controller-name": "di-operator",
        "replica-type": role.value,
        "pod-name": name,
    }.items() <= labels.items()
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DIJob", "u", True)
    assert pod["spec"].get("restartPolicy") == ("Never" if role is Role.COORDINATOR else None)
    view = POD.convert(pod)
    assert pods.url_of(view) == f"{name}.lab:{port}"
    service = pods.service(view)
    assert service["metadata"]["name"] == name
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()
    assert [(each["name"], each["port"]) for each in service["spec"]["ports"]] == [("di-port", port)]


def test_a_declared_port_wins() -> None:
    pod = made(Role.COLLECTOR, WITH_PORT)
    assert variables(pod)["COLLECTOR_PORT"] == "22270"
    assert len(pod["spec"]["containers"][0]["ports"]) == 1


def test_every_container_has_the_variables_and_ours_win() -> None:
    own = [{"name": "KUBERNETES_POD_NAME", "value": "mine"}, {"name": "A", "value": "b"}]
    template = changed(SIDECAR, {"spec/containers/1/env": own})
    pod = made(Role.COLLECTOR, template)
    assert variables(pod, 1) == {"A": "b", **variables(pod, 0)}


def test_resources_of_a_request_override_those_of_the_template() -> None:
    own = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    template = changed(SIDECAR, {"spec/containers/0/resources": own})
    pod = made(Role.LEARNER, template, resources={"cpu": "3", "nvidia.com/gpu": "1"})
    main, sidecar = pod["spec"]["containers"]
    assert main["resources"] == {
        "requests": {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "limits": {"cpu": "3", "nvidia.com/gpu": "1"},
    }
    assert "resources" not in sidecar


@pytest.mark.parametrize("role", [Role.COLLECTOR, Role.LEARNER, Role.DDP_LEARNER, Role.AGGREGATOR])
def test_volumes_and_the_priority_of_the_job(role: Role) -> None:
    job = {"spec/volumes": [{"name": "work", "emptyDir": {}}], "spec/priorityClassName": "high"}
    pod, there = made(role, job=job), role is not Role.AGGREGATOR
    assert [each["name"] for each in pod["spec"].get("volumes", [])] == (["work"] if there else [])
    assert pod["spec"]["priorityClassName"] == "high"


PLACES = [
    (Place(4, 4, 0), "22271", "localhost", ["di-port", "gpu-port-1", "gpu-port-2", "gpu-port-3"], None),
    (Place(3, 2, 0), "22271", "localhost", ["di-port", "gpu-port-1", "master-port"], "ddp-learner-master"),
    (Place(3, 1, 2, "first"), "22271", "first", ["di-port"], "ddp-learner-worker"),
    (Place(3, 1, 2, "first", local_ports=True), "22269", "first", ["di-port"], "ddp-learner-worker"),
]


@pytest.mark.parametrize(("place", "port", "master", "ports", "label"), PLACES)
def test_a_ddp_pod_knows_its_place(
    place: Place, port: str, master: str, ports: list[str], label: str | None
) -> None:
    aggregator = POD.convert({"metadata": {"name": "agg", "namespace": "lab", "uid": "a"}})
    pod = made(Role.DDP_LEARNER, place=place, aggregator=aggregator, aggregator_url="agg.lab:22272")
    found = variables(pod)
    assert found["LEARNER_PORT"] == port
    assert (found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"], found["START_RANK"]) == (
        str(place.world),
        str(place.local),
        str(place.start),
    )
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (master, "10314")
    assert found["KUBERNETES_AGGREGATOR_URL"] == "agg.lab:22272"
    assert [each["name"] for each in pod["spec"]["containers"][0]["ports"]] == ports
    assert pod["metadata"]["labels"].get("ddp-learner-type") == label
    owners = [(each["kind"], each.get("controller", False)) for each in pod["metadata"]["ownerReferences"]]
    assert owners == [("DIJob", True), ("Pod", False)]
    urls = pods.process_urls(POD.convert(pod))
    assert urls == [f"cartpole-ddp-learner-abcde.lab:{22271 + index}" for index in range(place.local)]


def test_a_token_is_a_reference_to_a_secret_and_a_path() -> None:
    pod = made(Role.COLLECTOR, server=Server(tokens=True))
    token, *_ = (each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "DI_SERVER_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "cartpole-di-token", "key": "token"}
    assert variables(pod)["KUBERNETES_SERVER_API_VERSION"] == "/t/$(DI_SERVER_TOKEN)/v1alpha1"


def test_a_replacement_is_the_old_pod_unbound_under_its_new_name() -> None:
    old = made(Role.COLLECTOR, SIDECAR)
    old["spec"] |= {"nodeName": "n", "volumes": [{"name": "kube-api-access-x"}, {"name": "work"}]}
    old["spec"]["containers"][0]["volumeMounts"] = [{"name": "kube-api-access-x"}, {"name": "work"}]
    old["metadata"]["annotations"] = {"diengine.opendilab.org/unanswered": "x", "mine": "y"}
    new = pods.replacement(old, "cartpole-collector-zzzzz")
    assert "nodeName" not in new["spec"]
    assert new["spec"]["volumes"] == new["spec"]["containers"][0]["volumeMounts"] == [{"name": "work"}]
    names = [variables(new, index)["KUBERNETES_POD_NAME"] for index in (0, 1)]
    assert names == ["cartpole-collector-zzzzz"] * 2
    assert new["metadata"]["labels"]["pod-name"] == "cartpole-collector-zzzzz"
    assert new["metadata"]["annotations"] == {
        "mine": "y",
        "diengine.opendilab.org/replaces": old["metadata"]["name"],
    }


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([], 0),
        ([0, 0, 0], 0),
        ([8, 8, 4], 8),
        ([8, 4], 8),
        ([0, 0, 8], 8),
        ([0, 0, 4, 8], 8),
        ([4, 4, 8, 8], 8),
    ],
)
def test_the_majority_of_machines(totals: list[int], expected: int) -> None:
    assert majority([Machine(total, total) for total in totals]) == expected


@pytest.mark.parametrize(
    ("gpus", "m", "pods_"), [(4, 0, (4,)), (8, 8, (8,)), (10, 4, (4, 4, 2)), (9, 8, (8, 1)), (16, 8, (8, 8))]
)
def test_the_released_split(gpus: int, m: int, pods_: tuple[int, ...]) -> None:
    assert split_of_release(gpus, m) == pods_


@pytest.mark.parametrize(
    ("gpus", "free", "expected"),
    [
        (8, [8, 8], (8,)),
        (8, [6, 2], (6, 2)),  # the released one does not fit
        (8, [4, 3, 1, 1], (4, 3, 1)),
        (10, [8, 8], (8, 2)),
        (16, [8, 0], (8, 8)),
    ],
)
def test_the_split_by_free_gpus(gpus: int, free: list[int], expected: tuple[int, ...]) -> None:
    found = split(gpus, [Machine(8, each) for each in free])
    assert found.pods == expected
    assert bool(found.missing) == (sum(free) < gpus)


@given(st.integers(2, 64), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12))
def test_a_split_gives_every_gpu_and_fits_if_anything_fits(gpus: int, given_: list[tuple[int, int]]) -> None:
    machines = [Machine(total, min(total, free)) for total, free in given_]
    found = split(gpus, machines)
    assert sum(found.pods) == gpus
    assert all(size > 0 for size in found.pods)
    assert isinstance(found, Split)
    if sum(machine.free for machine in machines) >= gpus:
        assert fits(found.pods, machines)
        assert not found.missing


@pytest.mark.parametrize(
    ("machines", "most", "count"),
    [
        ([Machine(2, 2)], 1024, 500_000_000),
        ([Machine(2, 2)] * 3, 255, 500_000_000),
        ([Machine(1, 10**9 - 1), Machine(1, 1)], 1, 2),
    ],
)
def test_no_more_pods_are_computed_than_there_may_be(machines: list[Machine], most: int, count: int) -> None:
    """A billion GPUs were four gigabytes of pods."""
    with pytest.raises(TooManyPods) as refused:
        split(1_000_000_000, machines, most)
    assert refused.value.count == count


FIRST, MAIN = "spec/coordinator/template", "spec/coordinator/template/spec/containers/0"
MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({f"{FIRST}": {}}, "spec.coordinator.template.spec.containers: there is no container"),
    ({f"{FIRST}/spec/containers": []}, "there is no container: write one called di-container"),
    ({f"{FIRST}/spec/containers": "x"}, "is not a list"),
    ({f"{MAIN}/image": ""}, "there is no image"),
    ({f"{MAIN}/image": " i"}, "has blanks around it"),
    ({f"{MAIN}/name": "A_b"}, "is not a container name"),
    ({f"{MAIN}/command": "python"}, "is not a list"),
    ({f"{MAIN}/env": {"A": "b"}}, "is not a list"),
    ({f"{MAIN}/ports": [{"containerPort": "x"}]}, "is not a whole number"),
    ({f"{FIRST}/spec/volumes": {}}, "is not a list"),
    ({f"{FIRST}/spec/hostNetwork": "yes"}, "is not true or false"),
    ({f"{FIRST}/spec": []}, "is not fields"),
    ({f"{FIRST}/metadata": "x"}, "is not fields"),
    ({f"{FIRST}/metadata/labels": {"a": 1}}, "is not text"),
    ({f"{MAIN}/resources": {"requests": {"cpu": "many"}}}, "is not a quantity"),
    ({f"{MAIN}/resources": {"limits": {"nvidia.com/gpu": "0.5"}}}, "whole number"),
    ({f"{MAIN}/resources": {"limits": {"nvidia.com/gpu": 10**9}}}, "than a pod can have: write at most 1024"),
    ({f"{MAIN}/resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}, "2 is more than the limit 1"),
    ({f"{FIRST}/spec/containers": [{"name": "a", "image": "i"}] * 2}, "two containers are called a"),
    ({"spec/collector/template": {}}, "spec.collector.template.spec.containers"),
    ({"spec/collector/template/spec/containers": [None]}, "cannot be null"),
    ({"spec/collector/template/spec/initContainers": [{"name": "i"}]}, "initContainers[0].image"),
    ({"spec/learner/template": {}}, "spec.learner.template.spec.containers"),
    ({"spec/learner/template/spec/containers/0/image": ABSENT}, "learner.template.spec.containers[0].image"),
    ({"spec/learner/template/spec/containers/0/name": ABSENT}, "is not a container name"),
    ({"spec/volumes": [{"name": "a"}, {"name": "a"}]}, "two volumes are called a"),
    ({"spec/volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name: is missing"),
    ({"spec/volumes": [{"name": 3}]}, "spec.volumes[0].name: is missing"),
    (
        {"spec/volumes": [{"name": "a"}], "spec/learner/template/spec/volumes": [{"name": "a"}]},
        "spec.learner.template.spec.volumes[0].name: spec.volumes has a volume a too",
    ),
    ({"metadata/name": "x" * 46}, "has 46 characters: write at most 45"),
    ({"metadata/name": "1job"}, "is not the name of a Service"),
    ({"metadata/name": "a.b"}, "is not the name of a Service"),
    ({f"{MAIN}/image": "Upper/Case"}, "is not an image name"),
    ({f"{MAIN}/image": "a b"}, "is not an image name"),
    ({f"{MAIN}/ports": [{"containerPort": 0}]}, "0 is not a port"),
    ({f"{MAIN}/ports": [{"containerPort": 70_000}]}, "70000 is not a port"),
    ({f"{MAIN}/ports": [{"name": "Di-Port", "containerPort": 1}]}, "is not a port's name"),
    ({f"{MAIN}/ports": [{"name": "a", "containerPort": n} for n in (1, 2)]}, "two ports are called a"),
    ({f"{MAIN}/volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}, "the pod has no volume 'nowhere'"),
    ({f"{MAIN}/volumeMounts": "x"}, "is not a list"),
    ({f"{MAIN}/args": [1]}, "is not text"),
    ({f"{MAIN}/env": [{"name": "A", "value": 1}]}, "is not text"),
    ({f"{MAIN}/env": ["A=b"]}, "is not fields"),
    ({f"{MAIN}/resources": {"limits": {"memory": "8GB"}}}, "is not a quantity"),
    ({f"{MAIN}/resources": {"limits": "many"}}, "is not fields"),
    ({f"{FIRST}/spec/terminationGracePeriodSeconds": "long"}, "is not a whole number"),
    ({f"{FIRST}/spec/nodeSelector": ["gpu"]}, "is not fields"),
    ({f"{FIRST}/spec/nodeSelector": {"a b": "c"}}, "is not a label's key"),
    ({f"{FIRST}/metadata/labels": {"team": "a b"}}, "is not a label's value"),
    ({f"{FIRST}/metadata/labels": {"/x": "y"}}, "is not a label's key"),
    ({f"{FIRST}/spec/tolerations": [{"key": 3}]}, "is not text"),
    ({f"{FIRST}/spec/initContainers": [{"name": "di-container", "image": "i"}]}, "two containers are called"),
    ({"spec/volumes": [{"name": ""}]}, "spec.volumes[0].name: is missing"),
    ({"spec/volumes": [{"name": "A_b"}]}, "is not the name of a volume"),
    ({"metadata/name": "-job"}, "is not the name of a Service"),
]


@pytest.mark.parametrize(("changes", "sentence"), MALFORMED)
def test_a_malformed_job_is_refused_with_its_field(changes: dict[str, Any], sentence: str) -> None:
    said = [str(each) for each in problems(dijob(**changes))]
    assert any(sentence in each for each in said), said


MAIN = "spec/coordinator/template/spec/containers/0"


def test_a_good_job_is_not() -> None:
    assert problems(dijob()) == []
    assert warnings(dijob(), None) == []


@pytest.mark.parametrize(
    ("changes", "old", "sentence"),
    [
        ({"spec/collector/template/spec/containers/0/name": "main"}, None, "no container is called di-"),
        ({"spec/learner/template/spec/restartPolcy": "Never"}, None, "did you mean restartPolicy?"),
        ({f"{MAIN}/args": ["--set", "k8s.api_version=/v1alpha1"]}, None, "an api_version of its own"),
        ({f"{MAIN}/env": [{"name": "C", "value": "api_version: x"}]}, None, "containers[0].env[C]: an api"),
        ({"spec/learner/template/spec/hostNetwork": True}, {}, "spec.learner.template: pods that"),
    ],
)
def test_what_has_no_effect_is_warned_of(
    changes: dict[str, Any], old: dict[str, Any] | None, sentence: str
) -> None:
    found = warnings(dijob(**changes), None if old is None else dijob(**old))
    assert any(sentence in each for each in found), found
