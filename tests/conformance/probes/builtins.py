"""Built-in kinds: defaults and refusals that kubectl and controllers meet."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

CLAIMS, EVENTS = f"{CORE}/persistentvolumeclaims", f"{CORE}/events"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
JOBS, STATEFUL = "/apis/batch/v1/namespaces/{ns}/jobs", "/apis/apps/v1/namespaces/{ns}/statefulsets"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
CLAIMED = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
AT_RV = {"metadata": {"name": "l", "resourceVersion": "{rv}"}}
ABOUT = {"kind": "Pod", "name": "p", "namespace": "{ns}"}
NOW = "2020-01-01T00:00:00Z"


def made(name: str, path: str, body: Body, *show: str) -> Probe:
    return probe(name, post(path, body, **({"show": show} if show else {})))


def bad_pod(name: str, **spec: Any) -> Probe:
    return probe(f"a pod with {name}", post(PODS, pod("p", **spec), show=("metadata.name",)))


def claim(**spec: Any) -> Body:
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return body("PersistentVolumeClaim", "c", spec=usual | spec)


def lease(**spec: Any) -> Body:
    return body("Lease", "l", "coordination.k8s.io/v1", spec=spec)


def event(**more: Any) -> Body:
    usual: Body = {"involvedObject": ABOUT, "reason": "Why", "message": "So", "type": "Normal"}
    return body("Event", "e", **(usual | more))


def new_event(**more: Any) -> Body:
    usual: Body = {"regarding": ABOUT, "reason": "Why", "note": "So", "type": "Normal", "action": "Act"}
    usual |= {"eventTime": "2020-01-01T00:00:00.000000Z"}
    usual |= {"reportingController": "example.com/c", "reportingInstance": "i"}
    return body("Event", "e", "events.k8s.io/v1", **(usual | more))


def job(**template: Any) -> Body:
    spec = {"suspend": True, "template": {"spec": {"containers": [container()], **template}}}
    return {"metadata": {"name": "j"}, "spec": spec}


QUANTITIES = {"limits": {"cpu": 1.5, "memory": 1024}, "requests": {"cpu": "0.1", "memory": "1e3"}}
NAMED_BY_THE_POD = {"fieldRef": {"fieldPath": "metadata.name"}}

PROBES: tuple[Probe, ...] = (
    made("a pod", PODS, pod("p")),
    made(
        "a pod with everything",
        PODS,
        pod(
            "p",
            containers=[
                container(
                    ports=[{"containerPort": 80}],
                    env=[{"name": "A", "valueFrom": NAMED_BY_THE_POD}],
                    livenessProbe={"httpGet": {"port": 80}},
                    readinessProbe={"exec": {"command": ["true"]}},
                    resources={"limits": {"cpu": "1", "memory": "1000Mi"}},
                    lifecycle={"preStop": {"httpGet": {"port": 1}}},
                )
            ],
            volumes=[
                {"name": "a"},
                {"name": "b", "configMap": {"name": "x"}},
                {"name": "s", "secret": {"secretName": "x"}},
                {"name": "d", "downwardAPI": {"items": [{"path": "x", **NAMED_BY_THE_POD}]}},
                {"name": "h", "hostPath": {"path": "/x"}},
            ],
            automountServiceAccountToken=False,
        ),
        "spec",
        "status",
    ),
    made("quantities", PODS, pod("p", containers=[container(resources=QUANTITIES)]),
         "spec.containers.0.resources"),
    made("empty lists", PODS,
         pod("p", tolerations=[], volumes=[], containers=[container(env=[], args=[], ports=[])]),
         "spec.tolerations", "spec.containers.0.env", "spec.containers.0.args"),
    bad_pod("a container twice", containers=[container(), container()]),
    bad_pod("a bad container name", containers=[container() | {"name": "A_"}]),
    bad_pod("a port out of range", containers=[container(ports=[{"containerPort": 70000}])]),
    bad_pod("a mount of nothing", containers=[container(volumeMounts=[{"name": "x", "mountPath": "/x"}])]),
    bad_pod("a request above its limit",
            containers=[container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})]),
    bad_pod("a quantity that is none", containers=[container(resources={"limits": {"cpu": "much"}})]),
    bad_pod("an unknown field", bogus=1),
    bad_pod("a text for a flag", hostNetwork="yes"),
    bad_pod("a service account that is not there", serviceAccountName="none"),
    bad_pod("a priority class that is not there", priorityClassName="none"),
    probe(
        "what may change of a pod",
        *given(post(PODS, pod("p"))),
        patch("merge", POD, {"spec": {"activeDeadlineSeconds": 5}},
              show=("spec.activeDeadlineSeconds", "metadata.generation")),
        patch("strategic", POD, {"spec": {"containers": [container(image="other")]}},
              show=("spec.containers.0.image",)),
        patch("merge", POD, {"spec": {"hostname": "x"}}),
    ),
    made("a deployment", DEPLOYMENTS, deployment("d")),
    made(
        "a stateful set",
        STATEFUL,
        {
            "metadata": {"name": "d"},
            "spec": {k: v for k, v in deployment("d")["spec"].items() if k in ("selector", "template")}
            | {"serviceName": "s", "replicas": 0},
        },
        "spec",
        "metadata.managedFields",
    ),
    probe("a job",
          post(JOBS, job(restartPolicy="Never"),
               show=("spec.completions", "spec.parallelism", "spec.backoffLimit", "spec.completionMode",
                     "spec.suspend", "spec.podReplacementPolicy"))),
    made("a service", SERVICES, service("s")),
    made("a headless service", SERVICES, service("s", clusterIP="None", selector={"a": "b"}), "spec",
         "status"),
    made("a service with node ports", SERVICES, service("s", type="NodePort"), "spec"),
    probe("a service with a bad name", post(SERVICES, service("1s"))),
    probe("a service is replaced", *given(post(SERVICES, service("s"))),
          put(SERVICE, service("s", ports=[{"port": 81}]),
              show=("spec.ports", "spec.clusterIPs", "spec.type"))),
    made("a secret", SECRETS,
         {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA==", "a": "eA=="}}),
    probe("a claim goes", *given(post(CLAIMS, claim())),
          delete(f"{CLAIMS}/c", show=("kind", "metadata.finalizers", "metadata.deletionGracePeriodSeconds")),
          get(f"{CLAIMS}/c", until=404)),
    probe(
        "a claim that a pod uses",
        *given(
            post(CLAIMS, claim()),
            post(PODS, pod("p", nodeName="n", volumes=[CLAIMED])),
            post(PODS, pod("waits", volumes=[CLAIMED])),
            delete(f"{CLAIMS}/c"),
        ),
        get(f"{CLAIMS}/c", show=("metadata.finalizers",)),
        *given(delete(POD, gracePeriodSeconds=0)),
        get(f"{CLAIMS}/c", until=404),
    ),
    made("a claim", CLAIMS, claim()),
    made("a lease", LEASES,
         lease(holderIdentity="a", leaseDurationSeconds=15, acquireTime="2020-01-01T00:00:00.000000Z",
               renewTime="2020-01-01T00:00:00.123456Z", leaseTransitions=0)),
    probe("a lease of no time", post(LEASES, lease(leaseDurationSeconds=0))),
    probe("a lease with a short time", post(LEASES, lease(renewTime=NOW), show=("spec",))),
    probe(
        "renewing a lease",
        post(LEASES, lease(holderIdentity="a", leaseDurationSeconds=15), take=TAKE, show=()),
        put(f"{LEASES}/l", lease(holderIdentity="b", leaseDurationSeconds=15) | AT_RV, show=("spec",)),
        put(f"{LEASES}/l", lease(holderIdentity="c", leaseDurationSeconds=15) | AT_RV),
        put(f"{LEASES}/l", lease(holderIdentity="d", leaseDurationSeconds=15)),
    ),
    made("an event", EVENTS, event()),
    probe("an event of another namespace",
          post(EVENTS, event(involvedObject={"kind": "Pod", "namespace": "other"}))),
    made("a new event", NEW_EVENTS, new_event()),
    probe("a new event through the old door", *given(post(NEW_EVENTS, new_event())), get(f"{EVENTS}/e")),
    probe("an old event through the new door",
          *given(post(EVENTS, event(count=3, firstTimestamp=NOW, lastTimestamp=NOW))),
          get(f"{NEW_EVENTS}/e")),
    probe("a new event of a series of one", post(NEW_EVENTS, new_event(series={"count": 1}))),
    probe("a new event about nothing here",
          post(NEW_EVENTS, new_event(regarding={"kind": "Node", "name": "n"}))),
    probe(
        "a new event is told otherwise",
        *given(post(NEW_EVENTS, new_event())),
        patch("merge", f"{NEW_EVENTS}/e", {"note": "Other"}),
        patch("merge", f"{NEW_EVENTS}/e", {"reason": "Other", "type": "Warning", "action": "Other"}),
        patch("merge", f"{NEW_EVENTS}/e", {"series": {"count": 1}}),
        patch("merge", f"{EVENTS}/e", {"message": "Other"}),
        get(f"{NEW_EVENTS}/e"),
    ),
    probe("an event about nothing here", post(EVENTS, event(involvedObject={"kind": "Node", "name": "n"}))),
    probe("a new event by apply", apply(f"{NEW_EVENTS}/e", new_event()),
          apply(f"{NEW_EVENTS}/e",
                new_event(series={"count": 2, "lastObservedTime": "2020-01-01T00:00:01.000000Z"}))),
    probe("a new event of a long note", post(NEW_EVENTS, new_event(note="x" * 1025))),
    probe("a series", *given(post(NEW_EVENTS, new_event())),
          patch("merge", f"{NEW_EVENTS}/e",
                {"series": {"count": 2, "lastObservedTime": "2020-01-01T00:00:01.000000Z"}},
                show=("series",))),
    probe("events of an object", *given(post(EVENTS, event())),
          get(EVENTS, fieldSelector="involvedObject.name=p,involvedObject.kind=Pod",
              show=("items.0.reason",))),
    made("a budget", BUDGETS,
         {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
         "spec", "metadata.generation"),
    probe("labels by the status of a pod", *given(post(PODS, pod("p"))),
          patch("merge", f"{POD}/status",
                {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}},
                show=("metadata.labels", "status.phase"))),
    probe("a service account", post(f"{CORE}/serviceaccounts", {"metadata": {"name": "a"}}),
          delete(f"{CORE}/serviceaccounts/a", show=("kind", "metadata.name"))),
    made("an ingress", INGRESSES,
         {"metadata": {"name": "i"},
          "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}, "spec", "status"),
)  # fmt: skip
