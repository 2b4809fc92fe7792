"""Who may hand out rights: nobody more than it has, unless it may escalate or bind."""

from __future__ import annotations

from tests.conformance.probe import Probe, Step, apply, given, patch, post, probe, put
from tests.conformance.probes.access import (
    ADDED,
    ADDS,
    ANN_SUBJECT,
    BINDINGS,
    BOT,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    READ_MAPS,
    ROLES,
    ann,
    binding,
    cluster_binding,
    cluster_role,
    granted,
    granted_everywhere,
    may,
    role,
    rule,
    urls,
)

WRITE_ROLES = rule("create get update patch delete", "roles rolebindings", "rbac.authorization.k8s.io")
WRITE_CLUSTER_ROLES = rule(
    "create get update patch",
    "roles rolebindings clusterroles clusterrolebindings",
    "rbac.authorization.k8s.io",
)
NEW = "new"


def handing(*rules: dict[str, object]) -> tuple[Step, ...]:
    """Ann may write roles and bindings, and has these rights beside."""
    return granted(*rules, WRITE_ROLES)


def new(*rules: dict[str, object]) -> dict[str, object]:
    return role(*rules, name=NEW)


def creates(*rules: dict[str, object]) -> tuple[Step, ...]:
    """Ann creates a role, dry."""
    return ann(post(ROLES, new(*rules), dryRun="All").but(show=("rules",)))


GET_PODS = rule("get", "pods")
R = f"{ROLES}/{NEW}"
PROBES: tuple[Probe, ...] = (
    probe("rights that one has", *handing(READ_MAPS), *ann(post(ROLES, new(READ_MAPS)))),
    probe(
        "rights that one has not", *handing(READ_MAPS), *ann(post(ROLES, new(rule("get list", "configmaps"))))
    ),
    probe(
        "many rights that one has not",
        *handing(READ_MAPS),
        *ann(
            post(
                ROLES,
                new(
                    rule("get list watch", "pods pods/log configmaps"),
                    rule("get delete", "deployments", "apps"),
                    rule("get", "secrets", "", "b", "a"),
                    rule("list", "pods"),
                    rule("*", "*", "*"),
                ),
            )
        ),
    ),
    probe(
        "rights of a group",
        *handing(READ_MAPS),
        post(ROLES, new(GET_PODS)).by("ann@{ns}", "team", "system:authenticated"),
    ),
    probe(
        "stars cover",
        *handing(rule("*", "configmaps"), rule("get", "*", "apps"), rule("list", "*/status")),
        *creates(rule("get list any", "configmaps")),
        *creates(rule("get", "deployments deployments/scale", "apps")),
        *creates(rule("list", "pods/status services/status")),
        *creates(rule("list", "pods")),
        *creates(rule("*", "configmaps")),
        *creates(rule("get", "*", "apps")),
        *creates(rule("get", "*", "*")),
        *creates(rule("list", "*/status")),
    ),
    probe(
        "names cover",
        *handing(rule("get", "configmaps", "", "a", "b"), GET_PODS),
        *creates(rule("get", "configmaps", "", "a")),
        *creates(rule("get", "configmaps", "", "b", "c")),
        *creates(rule("get", "configmaps")),
        *creates(rule("get", "pods", "", "p")),
    ),
    probe(
        "several rules cover together",
        *handing(READ_MAPS, GET_PODS, rule("list", "configmaps pods")),
        *creates(rule("get list", "configmaps pods")),
        *creates(rule("get list watch", "configmaps pods")),
    ),
    probe(
        "rights of the whole cluster cover",
        *granted_everywhere(WRITE_CLUSTER_ROLES, GET_PODS),
        *creates(GET_PODS),
        *ann(post(CLUSTER_ROLES, cluster_role(GET_PODS, name="b-{ns}"), show=("rules",))),
        *ann(post(CLUSTER_ROLES, cluster_role(READ_MAPS, name="c-{ns}"))),
    ),
    probe(
        "rights in a namespace are none in the cluster",
        *granted(READ_MAPS),
        *granted_everywhere(WRITE_CLUSTER_ROLES),
        *ann(post(CLUSTER_ROLES, cluster_role(READ_MAPS, name="b-{ns}"))),
        *creates(READ_MAPS),
    ),
    probe(
        "paths",
        *granted_everywhere(urls("get", "/foo/*", "/bar"), WRITE_CLUSTER_ROLES),
        *ann(
            post(
                CLUSTER_ROLES, cluster_role(urls("get", "/foo/x", "/foo/*"), name="b-{ns}"), show=("rules",)
            ),
            post(CLUSTER_ROLES, cluster_role(urls("get post", "/foo", "/bar/x"), name="c-{ns}")),
            post(CLUSTER_ROLES, cluster_role(urls("get", "*"), name="c-{ns}")),
        ),
    ),
    probe("a role without rules", *handing(READ_MAPS), *ann(post(ROLES, new(), show=("rules",)))),
    probe("the master of all", post(ROLES, new(GET_PODS), show=("rules",)).by("ann@{ns}", "system:masters")),
    probe(
        "who may escalate",
        *handing(rule("escalate", "roles", "rbac.authorization.k8s.io")),
        *ann(post(ROLES, new(GET_PODS), show=("rules",)), post(BINDINGS, binding(NEW, name=NEW))),
    ),
    probe(
        "who may escalate one",
        *handing(rule("escalate", "roles", "rbac.authorization.k8s.io", NEW)),
        *ann(post(ROLES, new(GET_PODS))),
        *given(post(ROLES, new())),
        *ann(patch("merge", R, {"rules": [GET_PODS]}, show=("rules",))),
    ),
    probe(
        "a change that adds rights",
        *handing(READ_MAPS),
        *given(post(ROLES, new(READ_MAPS))),
        *ann(
            patch("merge", R, {"rules": [READ_MAPS, GET_PODS]}),
            put(R, new(GET_PODS)),
            patch("json", R, [{"op": "add", "path": "/rules/0/verbs/-", "value": "list"}]),
            apply(R, new(GET_PODS), force="true"),
            patch("merge", R, {"metadata": {"labels": {"a": "b"}}}, show=("rules", "metadata.labels")),
        ),
    ),
    probe(
        "a change of a role with more rights",
        *handing(READ_MAPS),
        *given(post(ROLES, new(GET_PODS))),
        *ann(
            patch("merge", R, {"metadata": {"labels": {"a": "b"}}}),
            patch("merge", R, {"metadata": {"finalizers": ["example.com/x"]}}, show=("metadata.finalizers",)),
            patch("merge", R, {"metadata": {"finalizers": None}}, show=("metadata.finalizers",)),
            patch("merge", R, {"rules": []}, show=("rules",)),
        ),
    ),
    probe(
        "an apply of a new role",
        *handing(READ_MAPS),
        *ann(apply(R, new(GET_PODS)), apply(R, new(READ_MAPS), show=("rules",))),
    ),
    probe("a dry escalation", *handing(READ_MAPS), *ann(post(ROLES, new(GET_PODS), dryRun="All"))),
    probe(
        "what is wrong and too much",
        *handing(READ_MAPS),
        *ann(
            post(ROLES, new({"verbs": ["get"], "apiGroups": [""]})),
            post(ROLES, new(GET_PODS, {"verbs": [], "apiGroups": [""], "resources": ["pods"]})),
        ),
    ),
    probe(
        "what is there and too much",
        *handing(READ_MAPS),
        *given(post(ROLES, new())),
        *ann(post(ROLES, new(GET_PODS)), post(ROLES, new(READ_MAPS))),
    ),
    probe(
        "a generated name",
        *handing(READ_MAPS),
        *ann(
            post(ROLES, {"metadata": {"generateName": "x-"}, "rules": [GET_PODS]}, loose="a name of chance")
        ),
    ),
    probe(
        "rights that could not be found",
        *given(post(BINDINGS, binding("none", name="none"))),
        *given(post(BINDINGS, binding("none", kind="ClusterRole", name="none-too"))),
        *handing(READ_MAPS),
        *ann(post(ROLES, new(GET_PODS), loose="both are told, in any order")),
    ),
    probe(
        "a right that could not be found",
        *given(post(BINDINGS, binding("none", name="none"))),
        *handing(READ_MAPS),
        *ann(post(ROLES, new(GET_PODS))),
    ),
    probe(
        "a binding of rights that one has",
        *handing(READ_MAPS),
        *given(post(ROLES, new(READ_MAPS))),
        may(READ_MAPS),
        *ann(post(BINDINGS, binding(NEW, name=NEW), until=201)),
    ),
    probe(
        "a binding of rights that one has not",
        *handing(READ_MAPS),
        *given(post(ROLES, new(READ_MAPS, GET_PODS))),
        *given(post(BINDINGS, binding(NEW, {"kind": "User", "name": "bob@{ns}"}, name="bobs"))),
        may(GET_PODS, user="bob@{ns}"),
        *ann(
            post(BINDINGS, binding(NEW, name=NEW)),
            post(BINDINGS, binding("cluster-admin", kind="ClusterRole", name=NEW)),
            post(BINDINGS, binding("system:basic-user", kind="ClusterRole", name=NEW)),
            patch("merge", f"{BINDINGS}/bobs", {"subjects": [ANN_SUBJECT]}),
            patch("merge", f"{BINDINGS}/bobs", {"metadata": {"labels": {"a": "b"}}}),
            patch(
                "merge",
                f"{BINDINGS}/bobs",
                {"metadata": {"finalizers": ["example.com/x"]}},
                show=("subjects",),
            ),
            patch("merge", f"{BINDINGS}/bobs", {"metadata": {"finalizers": None}}, show=("subjects",)),
        ),
    ),
    probe(
        "a binding of what is not there",
        *handing(READ_MAPS),
        *ann(
            post(BINDINGS, binding("none", name=NEW)),
            post(BINDINGS, binding("none", kind="ClusterRole", name=NEW)),
        ),
    ),
    probe(
        "a binding of no kind",
        *handing(READ_MAPS),
        *ann(post(BINDINGS, binding("none", kind="Pod", name=NEW))),
    ),
    probe(
        "who may bind",
        *handing(rule("bind", "roles clusterroles", "rbac.authorization.k8s.io")),
        *ann(
            post(BINDINGS, binding("none", name=NEW), show=("roleRef",)),
            post(BINDINGS, binding("cluster-admin", kind="ClusterRole", name="more"), show=("roleRef",)),
        ),
    ),
    probe(
        "who may bind one",
        *handing(rule("bind", "clusterroles", "rbac.authorization.k8s.io", "view")),
        *ann(
            post(BINDINGS, binding("view", kind="ClusterRole", name=NEW), show=("roleRef",)),
            post(BINDINGS, binding("cluster-admin", kind="ClusterRole", name="more")),
        ),
    ),
    probe(
        "binding in the cluster",
        *granted(READ_MAPS),
        *granted_everywhere(WRITE_CLUSTER_ROLES),
        *given(post(CLUSTER_ROLES, cluster_role(READ_MAPS, name="b-{ns}"))),
        may(READ_MAPS),
        *ann(
            post(CLUSTER_BINDINGS, cluster_binding("cluster-admin") | {"metadata": {"name": "c-{ns}"}}),
            post(CLUSTER_BINDINGS, cluster_binding("none") | {"metadata": {"name": "c-{ns}"}}),
        ),
    ),
    probe(
        "gathering",
        *granted_everywhere(WRITE_CLUSTER_ROLES),
        *ann(
            post(CLUSTER_ROLES, cluster_role(name="b-{ns}", aggregationRule=ADDS)),
            post(CLUSTER_ROLES, cluster_role(READ_MAPS, name="b-{ns}", aggregationRule=ADDS)),
            post(CLUSTER_ROLES, cluster_role() | {"metadata": {"name": "d-{ns}", **ADDED}}, show=("rules",)),
            patch("merge", f"{CLUSTER_ROLES}/d-{{ns}}", {"aggregationRule": ADDS}),
            patch(
                "merge",
                f"{CLUSTER_ROLES}/view",
                {"metadata": {"labels": {"a": "b"}}},
                show=("code",),
                loose="long",
            ),
        ),
    ),
    probe(
        "a service account that hands out",
        *given(post(ROLES, role(WRITE_ROLES))),
        *given(post(BINDINGS, binding("r", {"kind": "ServiceAccount", "name": "bot", "namespace": "{ns}"}))),
        may(WRITE_ROLES, user=BOT),
        post(ROLES, new(GET_PODS)).by(BOT),
    ),
)
