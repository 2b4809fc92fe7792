"""The APIs of gang schedulers: for each, the objects and the pods of one job."""

from __future__ import annotations

from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.apis import APIS, api_of, gang_from
from elasticjob.controllers.parts.gangs.choice import absence, chosen, follow, gang_of
from elasticjob.controllers.parts.gangs.gang import Gang, written
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job, resource, role
from lab.clusters.accounts import RULES

KUBERNETES = "scheduling.k8s.io/v1beta1"
KUBERNETES_1_36 = "scheduling.k8s.io/v1alpha2"
KUBERNETES_1_35 = "scheduling.k8s.io/v1alpha1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
BY_NAME = {api.name: api for api in APIS}
ALL = frozenset(BY_NAME)

ROLES = {"ps": role(2), "worker": role(3, minReplicas=1, maxReplicas=4)}
SIZES = {"ps": 2, "worker": 3}


def together(gang: str = "required", **scheduling: Any) -> ElasticJob:
    policy = {"scheduling": {"gang": gang, **scheduling}}
    return job(ROLES, distributionStrategy="ParameterServerStrategy", runPolicy=policy)


def made(api: str, **scheduling: Any) -> Gang:
    return gang_of(together(**scheduling), BY_NAME[api], SIZES)


POLICY = {"gang": {"minCount": 3}}
TEMPLATE = {"name": "nodes", "schedulingPolicy": POLICY}
CONTROLLER = {"apiGroup": "elastic.iml.github.io", "kind": "ElasticJob", "name": "digits"}
SINGLE: Manifest = {"disruptionMode": {"single": {}}}
OBJECTS: list[tuple[str, dict[str, Any], list[tuple[str, Manifest]]]] = [
    (KUBERNETES, {"priorityClassName": "gold"},
     [("Workload",
       {"controllerRef": CONTROLLER,
        "podGroupTemplates": [{**TEMPLATE, **SINGLE, "priorityClassName": "gold"}]}),
      ("PodGroup",
       {"workloadRef": {"workloadName": "digits", "templateName": "nodes"}, "schedulingPolicy": POLICY,
        **SINGLE, "priorityClassName": "gold"})]),
    (KUBERNETES_1_36, {},
     [("Workload", {"controllerRef": CONTROLLER, "podGroupTemplates": [TEMPLATE]}),
      ("PodGroup",
       {"podGroupTemplateRef": {"workload": {"workloadName": "digits", "podGroupTemplateName": "nodes"}},
        "schedulingPolicy": POLICY})]),
    (KUBERNETES_1_35, {},
     [("Workload", {"controllerRef": CONTROLLER, "podGroups": [{"name": "nodes", "policy": POLICY}]})]),
    (COSCHEDULING, {"timeoutSeconds": 90}, [("PodGroup", {"minMember": 3, "scheduleTimeoutSeconds": 90})]),
    (VOLCANO, {"queue": "lab", "priorityClassName": "gold"},
     [("PodGroup",
       {"minMember": 3, "minTaskMember": {"ps": 2, "worker": 1}, "queue": "lab",
        "priorityClassName": "gold"})]),
    (VOLCANO, {"minAvailable": 4}, [("PodGroup", {"minMember": 4})]),
]  # fmt: skip


@pytest.mark.parametrize(("api", "scheduling", "expected"), OBJECTS)
def test_objects(api: str, scheduling: dict[str, Any], expected: list[tuple[str, Manifest]]) -> None:
    found = BY_NAME[api].manifests(together(**scheduling), made(api, **scheduling))
    assert [(manifest["kind"], manifest["spec"]) for _, manifest in found] == expected
    for kind, manifest in found:
        assert (manifest["apiVersion"], kind.api_version) == (api, api)
        assert manifest["metadata"]["name"] == "digits"
        assert [owner["uid"] for owner in manifest["metadata"]["ownerReferences"]] == ["job-1"]


PODS: list[tuple[str, Manifest]] = [
    (KUBERNETES, {"spec": {"schedulingGroup": {"podGroupName": "digits"}}}),
    (KUBERNETES_1_36, {"spec": {"schedulingGroup": {"podGroupName": "digits"}}}),
    (KUBERNETES_1_35, {"spec": {"workloadRef": {"name": "digits", "podGroup": "nodes"}}}),
    (COSCHEDULING, {"labels": {"scheduling.x-k8s.io/pod-group": "digits"}}),
    (
        VOLCANO,
        {
            "annotations": {"scheduling.k8s.io/group-name": "digits", "volcano.sh/task-spec": "worker"},
            "spec": {"schedulerName": "volcano"},
        },
    ),
]


@pytest.mark.parametrize(("api", "more"), PODS)
def test_pods(api: str, more: Manifest) -> None:
    """What a pod of a gang has beside that of the same job without one."""
    assert difference(pod(made(api)), pod(None)) == more


def test_every_api_has_a_row() -> None:
    assert {row[0] for row in OBJECTS} == {row[0] for row in PODS} == ALL


@pytest.mark.parametrize(
    ("by_template", "by_cluster", "expected"),
    [("", "", None), ("", "second", "second"), ("mine", "second", "mine")],
)
def test_the_scheduler_of_the_plugins(by_template: str, by_cluster: str, expected: str | None) -> None:
    gang = gang_of(together(), BY_NAME[COSCHEDULING], SIZES, by_cluster)
    assert pod(gang, by_template)["spec"].get("schedulerName") == expected


def pod(gang: Gang | None, scheduler: str = "") -> Manifest:
    made_of = together()
    if scheduler:
        made_of.spec.replica_specs["worker"].template["spec"]["schedulerName"] = scheduler
    owner = resource(SIZES, gang=written(gang) if gang else None)
    return pod_manifest(made_of, owner, Birth("worker", 0), master="", nodes=3)


def difference(found: Manifest, plain: Manifest) -> Manifest:
    new, old = (each["metadata"] | {"spec": each["spec"]} for each in (found, plain))
    parts = ("labels", "annotations", "spec")
    added = {part: {k: v for k, v in new[part].items() if old[part].get(k) != v} for part in parts}
    return {part: more for part, more in added.items() if more}


CHOICES: list[tuple[str, dict[str, Any], set[str], str | None]] = [
    ("that of Kubernetes first", {}, {KUBERNETES, COSCHEDULING, VOLCANO}, KUBERNETES),
    ("its newest version first", {}, {KUBERNETES_1_35, KUBERNETES_1_36}, KUBERNETES_1_36),
    ("what is there", {}, {VOLCANO}, VOLCANO),
    ("what has a queue", {"queue": "lab"}, {KUBERNETES, COSCHEDULING, VOLCANO}, VOLCANO),
    ("what has a time limit", {"timeoutSeconds": 9}, {KUBERNETES, COSCHEDULING, VOLCANO}, COSCHEDULING),
    ("nothing has a queue", {"queue": "lab"}, {KUBERNETES, COSCHEDULING}, None),
    ("the one that is named", {"gang": "coscheduling"}, {KUBERNETES, COSCHEDULING, VOLCANO}, COSCHEDULING),
    ("no other than that", {"gang": "coscheduling"}, {KUBERNETES, VOLCANO}, None),
    ("none", {"gang": "none"}, set(ALL), None),
    ("preferred, and there is none", {"gang": "preferred"}, set(), None),
]


@pytest.mark.parametrize(("case", "scheduling", "served", "api"), CHOICES, ids=[row[0] for row in CHOICES])
def test_choice(case: str, scheduling: dict[str, Any], served: set[str], api: str | None) -> None:
    found = chosen(together(**scheduling), served)
    assert (found.name if found else None) == api


def test_pods_of_two_priorities_are_not_for_an_api_that_knows_one() -> None:
    roles = {"worker": role(4, priority="0.5")}
    of_two = job(roles, runPolicy={"scheduling": {"gang": "required", "lowPriorityClassName": "spare"}})
    found = chosen(of_two, ALL)
    assert found is not None
    assert found.name == COSCHEDULING


def test_what_the_cluster_lacks_is_named() -> None:
    assert absence(together("volcano")) == (
        "gang volcano: the cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1"
    )


LEAST: list[tuple[str, dict[str, Any], dict[str, int], int]] = [
    ("the minimum of all roles, never all pods", {}, SIZES, 3),
    ("as the user says", {"minAvailable": 5}, SIZES, 5),
    ("no more than there are", {"minAvailable": 6}, SIZES, 5),
    ("those that are left, where others have done their work", {}, {"ps": 1, "worker": 0}, 1),
    ("of each role what is left", {}, {"ps": 0, "worker": 3}, 1),
    ("one or more", {"minAvailable": 0}, SIZES, 1),
]


@pytest.mark.parametrize(("case", "scheduling", "sizes", "least"), LEAST, ids=[row[0] for row in LEAST])
def test_least(case: str, scheduling: dict[str, Any], sizes: dict[str, int], least: int) -> None:
    assert gang_of(together(**scheduling), BY_NAME[COSCHEDULING], sizes).least == least


@pytest.mark.parametrize(
    ("api", "least"),
    [(KUBERNETES, 5), (KUBERNETES_1_36, 3), (KUBERNETES_1_35, 3), (COSCHEDULING, 5), (VOLCANO, 5)],
)
def test_the_least_number_follows_the_job_where_it_may(api: str, least: int) -> None:
    now = together(minAvailable=5, priorityClassName="gold")
    found = follow(made(api), now, SIZES)
    assert found.least == least
    assert found.priority_class_name == ("" if api == KUBERNETES else "gold")


COUNT = st.integers(0, 9)


@given(COUNT, COUNT, st.none() | COUNT)
def test_no_gang_waits_for_more_than_there_is(servers: int, workers: int, available: int | None) -> None:
    sizes = {"ps": servers, "worker": workers}
    scheduling: dict[str, Any] = {} if available is None else {"minAvailable": available}
    for api in APIS:
        found = gang_of(together(**scheduling), api, sizes)
        assert 1 <= found.least <= max(1, servers + workers)
        assert sum(found.roles.values()) <= found.least


def test_a_gang_is_kept_in_an_annotation() -> None:
    gang = made(VOLCANO, queue="lab")
    assert gang_from({names.GANG: written(gang)}) == gang
    assert api_of(gang).name == VOLCANO
    assert gang_from({}) is gang_from({names.GANG: ""}) is None


@pytest.mark.parametrize("verb", ["get", "create", "patch", "delete"])
def test_the_operator_may_write_them(verb: str) -> None:
    held = [product(rule["apiGroups"], rule["resources"]) for rule in RULES if verb in rule["verbs"]]
    assert {(kind.group, kind.plural) for api in APIS for kind in api.kinds} <= {*chain(*held)}
