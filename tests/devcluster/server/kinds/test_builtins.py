"""Pods, services and the other built-in kinds: defaults, checks, graceful deletion, subresources."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from elasticjob.devcluster.server.kinds.services import RANGE
from tests.kit.devcluster.api import CONFIG_MAPS, PODS, Api, pod

SERVICES = "/api/v1/namespaces/default/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_pods_get_their_defaults(api: Api) -> None:
    container = {
        "name": "main",
        "image": "python",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": 1}},
    }
    body = (await api.post(PODS, pod("p", containers=[container], volumes=[{"name": "v"}]))).body
    spec, made = body["spec"], body["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["dnsPolicy"]) == (
        "Always",
        30,
        "ClusterFirst",
    )
    assert spec["serviceAccountName"] == "default"
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert (made["terminationMessagePath"], made["imagePullPolicy"]) == ("/dev/termination-log", "Always")
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert made["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert body["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
async def test_quality_of_service(api: Api, resources: dict[str, Any], expected: str) -> None:
    body = pod("p", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert (await api.post(PODS, body)).body["status"]["qosClass"] == expected


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"containers": []}, 422, "spec.containers: Required value"),
        ({"containers": "x"}, 400, "cannot be handled as a Pod"),
        (
            {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            422,
            "Not found",
        ),
        (
            {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "abc"}}}]},
            400,
            "spec.containers[0].resources.limits.cpu",
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1100m"}},
                    }
                ]
            },
            422,
            "must be less than or equal to cpu limit of 1",
        ),
        (
            {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 99999}]}]},
            422,
            "between 1 and 65535",
        ),
        ({"hostname": "a.b"}, 422, "spec.hostname"),
    ],
)
async def test_bad_pods_are_refused(api: Api, spec: dict[str, Any], code: int, message: str) -> None:
    reply = await api.post(PODS, pod("p", **spec))
    assert reply.code == code, reply.body
    assert message in reply.message


async def test_only_image_and_a_few_fields_of_a_pod_change(api: Api) -> None:
    await api.post(PODS, pod("p"))
    reply = await api.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}})
    assert (reply.code, "pod updates may not change fields" in reply.message) == (422, True)
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    assert (await api.patch(f"{PODS}/p", image, "strategic")).body["spec"]["containers"][0][
        "image"
    ] == "other"


async def test_resize_changes_resources_only(api: Api) -> None:
    main = {"name": "main", "image": "python:3.11", "resources": {"requests": {"memory": "500Mi"}}}
    await api.post(PODS, pod("p", containers=[main]))
    change = {
        "spec": {
            "containers": [{"name": "main", "image": "no", "resources": {"requests": {"memory": "1Gi"}}}]
        }
    }
    reply = await api.patch(f"{PODS}/p/resize", change, "strategic")
    container = reply.body["spec"]["containers"][0]
    assert (container["image"], container["resources"]) == ("python:3.11", {"requests": {"memory": "1Gi"}})
    assert reply.body["metadata"]["generation"] == 2


async def test_an_unscheduled_pod_goes_at_once(api: Api) -> None:
    await api.post(PODS, pod("p"))
    await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_a_scheduled_pod_waits_for_the_final_delete(api: Api) -> None:
    await api.post(PODS, pod("p"))
    bound = await api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n1"}})
    assert bound.code == 201
    assert (await api.post(f"{PODS}/p/binding", {"target": {"name": "n2"}})).code == 409
    marked = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    shorter = (await api.delete(f"{PODS}/p", gracePeriodSeconds="5")).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    found = (await api.get(f"{PODS}/p")).body
    assert found["spec"]["nodeName"] == "n1"
    assert found["status"]["conditions"][0]["type"] == "PodScheduled"
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_conditions_merge_by_type_in_a_status_patch(api: Api) -> None:
    await api.post(PODS, pod("p"))
    for status, kind in (("True", "Ready"), ("False", "ContainersReady"), ("False", "Ready")):
        patch = {"status": {"phase": "Running", "conditions": [{"type": kind, "status": status}]}}
        body = (await api.patch(f"{PODS}/p/status", patch, "strategic")).body
    conditions = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    assert conditions == {"Ready": "False", "ContainersReady": "False"}


async def test_services_get_addresses_of_their_own(api: Api) -> None:
    async def make(name: str, **spec: Any) -> dict[str, Any]:
        reply = await api.post(
            SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]} | spec}
        )
        assert reply.code == 201, reply.body
        found: dict[str, Any] = reply.body["spec"]
        return found

    first, second = await make("a"), await make("b")
    assert ip_address(first["clusterIP"]) in RANGE
    assert first["clusterIP"] != second["clusterIP"]
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    headless = await make("c", clusterIP="None")
    assert headless["clusterIPs"] == ["None"]
    assert (await make("d", clusterIP="127.96.7.7"))["clusterIP"] == "127.96.7.7"


async def test_a_services_address_stays(api: Api) -> None:
    await api.post(SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})
    reply = await api.patch(f"{SERVICES}/a", {"spec": {"clusterIP": "127.96.9.9"}})
    assert (reply.code, "spec.clusterIPs[0]" in reply.message) == (422, True)
    replaced = await api.put(f"{SERVICES}/a", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 81}]}})
    assert ip_address(replaced.body["spec"]["clusterIP"]) in RANGE


async def test_secrets_encode_plain_strings_and_keep_their_type(api: Api) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    body = (await api.post(secrets, {"metadata": {"name": "s"}, "stringData": {"token": "abc"}})).body
    assert (body["type"], body["data"], "stringData" in body) == ("Opaque", {"token": "YWJj"}, False)
    assert (await api.patch(f"{secrets}/s", {"type": "other"})).code == 422
    assert (await api.post(secrets, {"metadata": {"name": "t"}, "data": {"a": "%"}})).code == 400


async def test_immutable_config_maps_stay_as_they_are(api: Api) -> None:
    await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}, "immutable": True})
    assert (await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})).code == 422
    assert (await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"a": "b"}}})).code == 200


async def test_leases_need_a_version_and_a_positive_duration(api: Api) -> None:
    body = {
        "metadata": {"name": "l"},
        "spec": {"leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"},
    }
    assert (await api.post(LEASES, body)).code == 201
    assert (await api.put(f"{LEASES}/l", body)).code == 422
    assert (await api.patch(f"{LEASES}/l", {"spec": {"leaseDurationSeconds": 0}})).code == 422


async def test_events_are_one_object_in_two_groups(api: Api) -> None:
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Because",
        "type": "Normal",
        "note": "a sentence",
        "regarding": {"kind": "Pod", "name": "p"},
        "reportingController": "me",
        "reportingInstance": "me-1",
        "action": "Act",
    }
    reply = await api.post(new, body)
    assert (reply.code, reply.body["note"], reply.body["apiVersion"]) == (
        201,
        "a sentence",
        "events.k8s.io/v1",
    )
    old = (await api.get("/api/v1/namespaces/default/events/e")).body
    assert (old["message"], old["involvedObject"]["name"], old["reportingComponent"]) == (
        "a sentence",
        "p",
        "me",
    )
    selector = "involvedObject.name=p,involvedObject.kind=Pod"
    assert await api.names("/api/v1/namespaces/default/events", fieldSelector=selector) == ["e"]
    assert await api.names(new, fieldSelector="regarding.name=p") == ["e"]
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    assert (await api.patch(f"{new}/e", series)).body["series"]["count"] == 2
    async with api.watch(new) as events:
        assert (await anext(events))["object"]["note"] == "a sentence"


async def test_a_service_accounts_token_is_accepted(api: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.post(accounts, {"metadata": {"name": "bot"}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    token = (await api.post(f"{accounts}/bot/token", request)).body["status"]["token"]
    api.session.headers["Authorization"] = f"Bearer {token}"
    review = (await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})).body
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"
    assert "system:serviceaccounts:default" in review["status"]["userInfo"]["groups"]


async def test_a_namespace_takes_its_objects_with_it(api: Api) -> None:
    namespaces = "/api/v1/namespaces"
    created = (await api.post(namespaces, {"metadata": {"name": "n"}})).body
    assert created["status"]["phase"] == "Active"
    maps = f"{namespaces}/n/configmaps"
    await api.post(maps, {"metadata": {"name": "held", "finalizers": ["x/y"]}})
    await api.post(maps, {"metadata": {"name": "free"}})
    since = (await api.get(namespaces)).body["metadata"]["resourceVersion"]
    assert (await api.delete(f"{namespaces}/n")).body["status"]["phase"] == "Terminating"
    refused = await api.post(maps, {"metadata": {"name": "late"}})
    assert (refused.code, "being terminated" in refused.message) == (403, True)
    await api.until(maps, "DELETED", fieldSelector="metadata.name=free", resourceVersion=since)
    assert (await api.get(f"{namespaces}/n")).code == 200
    await api.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
    await api.until(namespaces, "DELETED", resourceVersion=since)
    assert (await api.delete(f"{namespaces}/default")).code == 403
