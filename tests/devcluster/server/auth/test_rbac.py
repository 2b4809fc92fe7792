"""Rules of roles as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server.auth.attributes import RequestAttributes, attributes_of
from elasticjob.devcluster.server.auth.rbac import is_meant, permits
from elasticjob.devcluster.server.model.asking import User


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return found | ({"resourceNames": list(names)} if names else {})


@pytest.mark.parametrize(
    ("rule_", "attributes", "allowed"),
    [
        (rule("get", "pods"), RequestAttributes("get", "", "pods"), True),
        (rule("get", "pods"), RequestAttributes("get", "", "pods", "log"), False),
        (rule("get", "pods/*"), RequestAttributes("get", "", "pods", "log"), False),
        (rule("get", "*/log"), RequestAttributes("get", "", "pods", "log"), True),
        (rule("get", "pods", "", "a"), RequestAttributes("get", "", "pods", name="a"), True),
        (rule("create", "pods", "", "a"), RequestAttributes("create", "", "pods"), False),
        (rule("get", "pods", "*"), RequestAttributes("get", "apps", "pods"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, RequestAttributes("get", path="/x/y"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, RequestAttributes("get", path="/x"), False),
        (rule("*", "*", "*"), RequestAttributes("get", path="/x"), False),
    ],
)
def test_rules_permit(rule_: dict[str, Any], attributes: RequestAttributes, allowed: bool) -> None:
    assert permits(rule_, attributes) is allowed


@pytest.mark.parametrize(
    ("method", "path", "query", "attributes"),
    [
        ("GET", "/api/v1/pods", {}, RequestAttributes("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": ""}, RequestAttributes("watch", "", "pods")),
        ("GET", "/api/v1/pods", {"fieldSelector": "a=b,metadata.name=x"},
         RequestAttributes("list", "", "pods", name="x")),
        ("GET", "/api/v1/pods", {"fieldSelector": "metadata.name!=x"}, RequestAttributes("list", "", "pods")),
        ("DELETE", "/apis/a.b/v1/namespaces/n/jobs", {},
         RequestAttributes("deletecollection", "a.b", "jobs", "", "n")),
        ("PATCH", "/apis/a.b/v1/namespaces/n/jobs/x/s", {},
         RequestAttributes("patch", "a.b", "jobs", "s", "n", "x")),
        ("PUT", "/api/v1/namespaces/n/status", {},
         RequestAttributes("update", "", "namespaces", "status", "n", "n")),
        ("GET", "/api/v1/namespaces/n", {}, RequestAttributes("get", "", "namespaces", "", "n", "n")),
        ("GET", "/api/v1/watch/namespaces/n/pods/p", {},
         RequestAttributes("watch", "", "pods", "", "n", "p")),
        ("GET", "/api/v1", {}, RequestAttributes("get", path="/api/v1")),
        ("POST", "/healthz", {}, RequestAttributes("post", path="/healthz")),
    ],
)  # fmt: skip
def test_a_request_wants(
    method: str, path: str, query: dict[str, str], attributes: RequestAttributes
) -> None:
    assert attributes_of(method, path, query) == attributes


@pytest.mark.parametrize(
    ("subject", "namespace", "meant"),
    [
        ({"kind": "User", "name": "ann"}, "n", True),
        ({"kind": "Group", "name": "team"}, "n", True),
        ({"kind": "ServiceAccount", "name": "ann"}, "n", False),
        ({"kind": "User", "name": "team"}, "n", False),
    ],
)
def test_subjects_mean_users(subject: dict[str, str], namespace: str, meant: bool) -> None:
    assert is_meant(subject, User("ann", ("team",)), namespace) is meant


@pytest.mark.parametrize(
    ("place", "namespace", "meant"), [("", "n", True), ("n", "m", True), ("", "", False)]
)
def test_an_account_without_a_namespace_is_of_the_bindings(place: str, namespace: str, meant: bool) -> None:
    account = User("system:serviceaccount:n:bot")
    assert (
        is_meant({"kind": "ServiceAccount", "name": "bot", "namespace": place}, account, namespace) is meant
    )
