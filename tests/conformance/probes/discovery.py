"""What the server says of itself, as kubectl reads it."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
REVIEWS = "/apis/authorization.k8s.io/v1"
GET_PODS = {"namespace": "{ns}", "verb": "get", "resource": "pods"}

PROBES: tuple[Probe, ...] = (
    probe("versions of the core", get("/api", show=("kind", "versions"))),
    probe("the kind of the groups' list", get("/apis", show=("kind", "apiVersion"))),
    probe("health", get("/healthz"), get("/readyz"), get("/livez")),
    probe("the version", get("/version", show=("major", "minor"))),
    probe("a group", get("/apis/apps")),
    probe("a group that is not there", get("/apis/none"), get("/apis/apps/v9")),
    probe(
        "resources of leases",
        get("/apis/coordination.k8s.io/v1", show=("kind", "apiVersion", "groupVersion")),
    ),
    probe("a custom group", *defined(), get("/apis/{group}", until=200), get("/apis/{group}/v1", until=200)),
    probe(
        "the aggregated form",
        get("/apis", accept=AGGREGATED, show=("kind", "apiVersion", "items.0.metadata.creationTimestamp")),
    ),
    probe("openapi of what is not there", get("/openapi/v3/apis/none/v1", show=())),
    probe(
        "may I",
        post(
            f"{REVIEWS}/selfsubjectaccessreviews",
            review("authorization", "SelfSubjectAccessReview", resourceAttributes=GET_PODS),
            show=("kind", "status.allowed", "spec"),
        ),
    ),
    probe(
        "may another",
        post(
            f"{REVIEWS}/subjectaccessreviews",
            review("authorization", "SubjectAccessReview", user="nobody", resourceAttributes=GET_PODS),
            show=("status.allowed",),
        ),
    ),
    probe(
        "who am I",
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            review("authentication", "SelfSubjectReview"),
            show=("kind", "status.userInfo.groups"),
        ),
    ),
)
