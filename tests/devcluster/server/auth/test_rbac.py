"""Rules of roles as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server.auth.rbac import is_meant, permits
from elasticjob.devcluster.server.auth.wish import Wish, wish_of
from elasticjob.devcluster.server.model.asking import User


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return found | ({"resourceNames": list(names)} if names else {})


@pytest.mark.parametrize(
    ("rule_", "wish", "allowed"),
    [
        (rule("get", "pods"), Wish("get", "", "pods"), True),
        (rule("get", "pods"), Wish("get", "", "pods", "log"), False),
        (rule("get", "pods/*"), Wish("get", "", "pods", "log"), False),
        (rule("get", "*/log"), Wish("get", "", "pods", "log"), True),
        (rule("get", "pods", "", "a"), Wish("get", "", "pods", name="a"), True),
        (rule("create", "pods", "", "a"), Wish("create", "", "pods"), False),
        (rule("get", "pods", "*"), Wish("get", "apps", "pods"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, Wish("get", path="/x/y"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, Wish("get", path="/x"), False),
        (rule("*", "*", "*"), Wish("get", path="/x"), False),
    ],
)
def test_rules_permit(rule_: dict[str, Any], wish: Wish, allowed: bool) -> None:
    assert permits(rule_, wish) is allowed


@pytest.mark.parametrize(
    ("method", "path", "query", "wish"),
    [
        ("GET", "/api/v1/pods", {}, Wish("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": ""}, Wish("watch", "", "pods")),
        ("GET", "/api/v1/pods", {"fieldSelector": "a=b,metadata.name=x"}, Wish("list", "", "pods", name="x")),
        ("GET", "/api/v1/pods", {"fieldSelector": "metadata.name!=x"}, Wish("list", "", "pods")),
        ("DELETE", "/apis/a.b/v1/namespaces/n/jobs", {}, Wish("deletecollection", "a.b", "jobs", "", "n")),
        ("PATCH", "/apis/a.b/v1/namespaces/n/jobs/x/s", {}, Wish("patch", "a.b", "jobs", "s", "n", "x")),
        ("PUT", "/api/v1/namespaces/n/status", {}, Wish("update", "", "namespaces", "status", "n", "n")),
        ("GET", "/api/v1/namespaces/n", {}, Wish("get", "", "namespaces", "", "n", "n")),
        ("GET", "/api/v1/watch/namespaces/n/pods/p", {}, Wish("watch", "", "pods", "", "n", "p")),
        ("GET", "/api/v1", {}, Wish("get", path="/api/v1")),
        ("POST", "/healthz", {}, Wish("post", path="/healthz")),
    ],
)
def test_a_request_wants(method: str, path: str, query: dict[str, str], wish: Wish) -> None:
    assert wish_of(method, path, query) == wish


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
