"""Who asks, who may do what, and how rules are read."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

ANN = "ann@{ns}"
RBAC_V1 = "rbac.authorization.k8s.io/v1"
RBAC = f"/apis/{RBAC_V1}"
ROLES, BINDINGS = f"{RBAC}/namespaces/{{ns}}/roles", f"{RBAC}/namespaces/{{ns}}/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
ASKED = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ANN_SUBJECT = {"kind": "User", "name": ANN, "apiGroup": "rbac.authorization.k8s.io"}
OURS = {"labels": {"probe": "{ns}"}}  # what is not in the probe's namespace is found by it afterwards
NO_RIGHT = config_map("a", {"x": "1"})


def rule(verbs: str, resources: str, groups: str = "", *names: str) -> Body:
    """A rule whose parts are words; `core` is the group without a name."""
    rule = {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "core" else group for group in (groups or "core").split()],
        "resources": resources.split(),
    }
    return rule | ({"resourceNames": list(names)} if names else {})


def urls(verbs: str, *paths: str) -> Body:
    return {"verbs": verbs.split(), "nonResourceURLs": list(paths)}


def role(*rules: Body, name: str = "r", **metadata: Any) -> Body:
    return body("Role", name, RBAC_V1, metadata={"name": name, **metadata}, rules=list(rules))


def cluster_role(*rules: Body, name: str = "{ns}", **more: Any) -> Body:
    return role(*rules) | {"kind": "ClusterRole", "metadata": {"name": name, **OURS}} | more


def binding(role: str = "r", *subjects: Body, kind: str = "Role", name: str = "r") -> Body:
    of = {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    return body("RoleBinding", name, RBAC_V1, roleRef=of, subjects=list(subjects or (ANN_SUBJECT,)))


def may(rule: Body, user: str = ANN, allowed: bool = True, namespace: str = "{ns}", **spec: Any) -> Step:
    """Wait until a user has the last right of a rule: the real server hears of roles a moment later."""
    asked: Body = {"verb": rule["verbs"][-1].replace("*", "any")}
    if "nonResourceURLs" in rule:
        asked["path"] = rule["nonResourceURLs"][-1].rstrip("*")
        question = {"nonResourceAttributes": asked}
    else:
        resource, _, subresource = rule["resources"][-1].partition("/")
        asked |= {
            "group": rule["apiGroups"][-1].replace("*", "any"),
            "resource": resource.replace("*", "any"),
            "subresource": subresource,
            "namespace": namespace,
            "name": rule.get("resourceNames", [""])[-1],
        }
        question = {"resourceAttributes": asked}
    asking = {"spec": {"user": user, **question, **spec}}
    return post(ASKED, asking, until={"status.allowed": allowed}, show=())


def granted(*rules: Body, name: str = "r") -> tuple[Step, ...]:
    """Steps after which ann has these rights in the probe's namespace."""
    made = given(post(ROLES, role(*rules, name=name)), post(BINDINGS, binding(name, name=name)))
    return (*made, may(rules[-1]))


def ann(*steps: Step) -> tuple[Step, ...]:
    return tuple(step.by(ANN) for step in steps)


def codes(*steps: Step) -> tuple[Step, ...]:
    """Ann's steps, of which only the refusals are shown whole."""
    return ann(*(step.but(show=("kind",)) for step in steps))


READ_MAPS = rule("get", "configmaps")

REFUSED = (
    probe("refused in a namespace",
          *ann(get(MAPS), get(ONE), post(MAPS, NO_RIGHT), put(ONE, NO_RIGHT), patch("merge", ONE, {}),
               apply(ONE, NO_RIGHT), delete(ONE), delete(MAPS), watch(MAPS, 1))),
    probe("refused kinds of a definition", *defined(),
          *ann(get(THINGS), get(f"{THINGS}/one/scale"), patch("merge", f"{THINGS}/one/status", {}))),
    probe(
        "nobody",
        *(
            step.but(bare=True)
            for step in (
                get(MAPS),
                post(MAPS, NO_RIGHT),
                get("/apis"),
                get("/metrics"),
                get("/version", show=("major",)),
                get("/healthz"),
                post(ASKED, {}),
            )
        ),
    ),
    probe("a wrong token", get(MAPS).with_token("none"), get("/version").with_token("none"),
          get(MAPS, bare=True, headers={"Authorization": "Basic eDp5"}),
          get(MAPS, bare=True, headers={"Authorization": "Bearer"})),
)  # fmt: skip

BOT = "system:serviceaccount:{ns}:bot"
BOT_SUBJECT = {"kind": "ServiceAccount", "name": "bot", "namespace": "{ns}"}
RULES = (
    probe("verbs of a role", *granted(rule("create get patch", "configmaps")),
          *codes(post(MAPS, NO_RIGHT), get(ONE), patch("merge", ONE, {"data": {"x": "2"}}), get(MAPS),
                 watch(MAPS, 1, timeoutSeconds="1"), put(ONE, NO_RIGHT), delete(ONE), delete(MAPS),
                 get("/api/v1/namespaces/default/configmaps/a"))),
    probe("an apply that creates needs both verbs", *granted(rule("patch", "configmaps")),
          *ann(apply(ONE, NO_RIGHT)), *given(post(MAPS, NO_RIGHT)),
          *codes(apply(ONE, NO_RIGHT, force="true"))),
    probe(
        "names of a rule",
        *given(post(MAPS, config_map("a")), post(MAPS, config_map("b"))),
        *granted(rule("get list watch patch create deletecollection delete", "configmaps", "", "a", "c")),
        *codes(
            get(ONE),
            get(f"{MAPS}/b"),
            patch("merge", ONE, {}),
            post(MAPS, config_map("c")),
            get(MAPS),
            get(MAPS, fieldSelector="metadata.name=a"),
            get(MAPS, fieldSelector="metadata.name=b"),
            watch(MAPS, 1, fieldSelector="metadata.name=b"),
            delete(MAPS),
            delete(ONE),
        ),
        *ann(watch(MAPS, 1, fieldSelector="metadata.name=c", timeoutSeconds="1")),
    ),
    probe("subresources of a rule", *given(post(PODS, pod("p"))), *granted(rule("get patch", "pods/status")),
          *codes(get(f"{POD}/status"), patch("merge", f"{POD}/status", {}), get(POD), patch("merge", POD, {}),
                 get(f"{POD}/log"))),
    probe(
        "a cluster role in one namespace",
        *given(post(CLUSTER_ROLES, cluster_role(READ_MAPS, rule("get", "nodes"), urls("get", "/metrics")))),
        *given(post(BINDINGS, binding("{ns}", kind="ClusterRole"))),
        may(READ_MAPS),
        *codes(
            get(ONE), get("/api/v1/namespaces/default/configmaps/a"), get("/api/v1/nodes/n"), get("/metrics")
        ),
    ),
    probe("a service account's rights", *given(post(ROLES, role(READ_MAPS))),
          *given(post(BINDINGS, binding("r", BOT_SUBJECT))), may(READ_MAPS, user=BOT),
          get(ONE).by(BOT).but(show=("kind",)), get(ONE).by("system:serviceaccount:default:bot"),
          get(ONE).by("bot")),
    probe("all service accounts of a namespace", *given(post(ROLES, role(READ_MAPS))),
          *given(post(BINDINGS, binding("r", {"kind": "Group", "name": "system:serviceaccounts:{ns}"}))),
          may(READ_MAPS, groups=["system:serviceaccounts:{ns}"]), get(ONE).by(BOT).but(show=("kind",)),
          get(ONE).by("system:serviceaccount:default:bot")),
    probe(
        "rights to objects of a definition",
        *stored({"replicas": 1}),
        *granted(rule("get patch", "things things/status", "{group}")),
        *codes(
            get(f"{THINGS}/one"),
            patch("merge", f"{THINGS}/one/status", {"status": {"phase": "x"}}),
            get(f"{THINGS}/one/scale"),
        ),
    ),
)  # fmt: skip

AUTHENTICATION = "/apis/authentication.k8s.io/v1"
WHO, TOKENS = f"{AUTHENTICATION}/selfsubjectreviews", f"{AUTHENTICATION}/tokenreviews"
ACCOUNTS = f"{CORE}/serviceaccounts"
TOKEN = f"{ACCOUNTS}/bot/token"


def who() -> Step:
    return post(WHO, review("authentication", "SelfSubjectReview"))


def token_request(**spec: Any) -> Body:
    return review("authentication", "TokenRequest") | {"spec": spec}


def as_bot(step: Step) -> Step:
    return step.with_token("{token}")


MADE = (
    *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})),
    post(TOKEN, token_request(), take={"token": "status.token"}, show=()),
)
IDENTITY = (
    probe("who am I", who(), *ann(who()), who().but(bare=True), get(WHO), post(WHO, {}), post(WHO, "x")),
    probe("a token that is used", *MADE,
          *given(post(ROLES, role(READ_MAPS)), post(BINDINGS, binding("r", BOT_SUBJECT))),
          may(READ_MAPS, user=BOT), as_bot(who()), as_bot(get(f"{MAPS}/a")), as_bot(get(MAPS)),
          post(TOKENS, review("authentication", "TokenReview", token="{token}"))),
    probe(
        "a token of a pod",
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}}), post(PODS, pod("p", serviceAccountName="bot"))),
        post(
            TOKEN,
            token_request(boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"}),
            take={"token": "status.token"},
            show=(),
        ),
        as_bot(who()),
        *given(delete(f"{PODS}/p", gracePeriodSeconds=0)),
        as_bot(who()).but(until=401),
    ),
    probe("a token of an account that is gone", *MADE, *given(delete(f"{ACCOUNTS}/bot")),
          as_bot(who()).but(until=401), *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})), as_bot(who())),
)  # fmt: skip
PROBES: tuple[Probe, ...] = (*REFUSED, *RULES, *IDENTITY)
