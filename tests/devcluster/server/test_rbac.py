"""Rules of roles as pure functions: what they permit, and that nobody hands out more than it holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.server.asking import User
from elasticjob.devcluster.server.rbac import is_meant, permits, uncovered
from elasticjob.devcluster.server.wish import Wish, wish_of

VERBS, GROUPS = ("get", "list", "*"), ("", "apps", "*")
RESOURCES, NAMES = ("pods", "pods/status", "jobs/status", "*/status", "*"), ("a", "b")
PATHS = ("/x", "/x/y", "/x/*", "/x*", "*")


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return found | ({"resourceNames": list(names)} if names else {})


def some(words: tuple[str, ...], least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(words), min_size=least, max_size=3, unique=True)


OF_RESOURCES = st.fixed_dictionaries(
    {"verbs": some(VERBS), "apiGroups": some(GROUPS), "resources": some(RESOURCES)},
    optional={"resourceNames": some(NAMES, least=0)},
)
RULES = st.lists(
    OF_RESOURCES | st.fixed_dictionaries({"verbs": some(VERBS), "nonResourceURLs": some(PATHS)}), max_size=4
)
WISHES = st.builds(
    Wish,
    st.sampled_from(("get", "list", "watch")),
    st.sampled_from(("", "apps", "batch")),
    st.sampled_from(("pods", "jobs")),
    st.sampled_from(("", "status", "log")),
    name=st.sampled_from(("", "a", "b", "c")),
) | st.builds(Wish, st.sampled_from(("get", "post")), path=st.sampled_from(("/", "/x", "/x/y", "/xy")))


@given(RULES, RULES, WISHES)
def test_what_is_covered_gives_nobody_a_new_right(
    held: list[dict[str, Any]], asked: list[dict[str, Any]], wish: Wish
) -> None:
    if not uncovered(held, asked) and any(permits(each, wish) for each in asked):
        assert any(permits(each, wish) for each in held)


@given(RULES, RULES)
def test_what_one_holds_one_may_hand_out(held: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    assert uncovered([*more, *held], held) == []


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


def test_what_is_missing_is_told_by_resource() -> None:
    asked = [rule("get list", "pods"), rule("get", "pods/log", "", "a"), rule("list", "jobs", "batch")]
    assert uncovered([rule("get", "pods")], asked) == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}',
        '{APIGroups:[""], Resources:["pods/log"], ResourceNames:["a"], Verbs:["get"]}',
        '{APIGroups:["batch"], Resources:["jobs"], Verbs:["list"]}',
    ]


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


def test_a_right_to_the_empty_name_covers_not_all_names() -> None:
    assert uncovered([rule("get", "pods", "", "")], [rule("get", "pods")])
