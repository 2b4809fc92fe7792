"""Who asks: impersonation, reviews of access, tokens."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import Body, pod
from tests.conformance.probe import CORE, MAPS, PODS, SECRETS, Probe, Step, delete, get, given, post, probe
from tests.conformance.probes.access import (
    ANN,
    ASKED,
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

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
SELF, RULES = f"{AUTHORIZATION}/selfsubjectaccessreviews", f"{AUTHORIZATION}/selfsubjectrulesreviews"
LOCAL = f"{AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
WHO, TOKENS = f"{AUTHENTICATION}/selfsubjectreviews", f"{AUTHENTICATION}/tokenreviews"
ACCOUNTS = f"{CORE}/serviceaccounts"
TOKEN = f"{ACCOUNTS}/bot/token"
SHOWN = ("status.userInfo.username", "status.userInfo.groups", "status.userInfo.uid", "status.userInfo.extra")


def review(kind: str, group: str = "authorization", **spec: Any) -> Body:
    body: Body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind}
    return body | ({"spec": spec} if spec else {})


def who() -> Step:
    return post(WHO, review("SelfSubjectReview", "authentication"))


def acting(**headers: str | tuple[str, ...]) -> Step:
    """Who one is with these headers (`_` for `-`)."""
    named = {f"Impersonate-{name.replace('_', '-')}": value for name, value in headers.items()}
    return who().but(headers=named)


def token_request(**spec: Any) -> Body:
    return review("TokenRequest", "authentication") | {"spec": spec}


def bot(*bound: Body, cluster: bool = False) -> tuple[Step, ...]:
    """Steps after which the token of the account `bot` is known, and it has these rights."""
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "{ns}"}
    account = given(post(ACCOUNTS, {"metadata": {"name": "bot"}}))
    token = post(TOKEN, token_request(), take={"token": "status.token"}, show=())
    if not bound:
        return (*account, token)
    rights = (
        given(
            post(CLUSTER_ROLES, cluster_role(*bound)),
            post(CLUSTER_BINDINGS, cluster_binding("{ns}", subject)),
        )
        if cluster
        else given(post(ROLES, role(*bound)), post(BINDINGS, binding("r", subject)))
    )
    return (*account, *rights, token, may(bound[-1], user=BOT))


def as_bot(step: Step, **headers: str | tuple[str, ...]) -> Step:
    named = {f"Impersonate-{name.replace('_', '-')}": value for name, value in headers.items()}
    return step.but(headers=named).with_token("{token}")


IMPERSONATION = (
    probe(
        "acting as others",
        acting(User="ann"),
        acting(User="ann", Group=("a", "b")),
        acting(User="ann", Group=("a", "system:authenticated")),
        acting(User="ann", Group=("system:unauthenticated",)),
        acting(User="system:anonymous"),
        acting(User="system:serviceaccount:{ns}:bot"),
        acting(User="system:serviceaccount:{ns}:bot", Group=("a",)),
        acting(User="system:serviceaccount:{ns}"),
        acting(User="ann", Uid="1-2"),
        acting(User="ann", Extra_Scopes=("one", "two"), Extra_Acme_com_2fPart="x"),
        acting(User="ann", **{"Extra_acme%2Ecom%2Fpart": "x"}),
    ),
    probe(
        "acting as nobody in particular",
        acting(Group="a"),
        acting(Uid="1"),
        acting(Extra_Scopes="x"),
        acting(User="", Group="a"),
    ),
    probe(
        "acting without the right",
        *bot(),
        as_bot(who(), User="ann"),
        as_bot(who(), User="system:serviceaccount:{ns}:other"),
        as_bot(who(), Group="a"),
        as_bot(get(MAPS), User="ann", Group="a"),
        as_bot(get("/healthz"), User="ann"),
    ),
    probe(
        "acting with the right",
        *bot(
            rule("impersonate", "users", "", "ann"),
            rule("impersonate", "groups", "", "a"),
            rule("impersonate", "userextras/scopes", "authentication.k8s.io", "one"),
            rule("impersonate", "uids", "authentication.k8s.io", "1"),
            cluster=True,
        ),
        as_bot(who(), User="ann"),
        as_bot(who(), User="bob"),
        as_bot(who(), User="ann", Group="a"),
        as_bot(who(), User="ann", Group=("a", "b")),
        as_bot(who(), User="ann", Extra_Scopes="one"),
        as_bot(who(), User="ann", Extra_Scopes=("one", "two")),
        as_bot(who(), User="ann", Extra_Other="one"),
        as_bot(who(), User="ann", Uid="1"),
        as_bot(who(), User="ann", Uid="2"),
        as_bot(get(MAPS), User="ann"),
    ),
    probe(
        "acting as accounts of a namespace",
        *bot(rule("impersonate", "serviceaccounts")),
        as_bot(who(), User="system:serviceaccount:{ns}:other"),
        as_bot(who(), User="system:serviceaccount:default:other"),
    ),
)

PODS_ASKED = {"resource": "pods", "verb": "get", "namespace": "{ns}"}
SUBJECTS: tuple[Body, ...] = (
    {
        "user": ANN,
        "resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "{ns}"},
    },
    {"user": "bob", "resourceAttributes": PODS_ASKED},
    {"groups": ["system:masters"], "resourceAttributes": PODS_ASKED},
    {
        "user": ANN,
        "uid": "1",
        "extra": {"a": ["b"]},
        "groups": ["x"],
        "resourceAttributes": PODS_ASKED,
    },
    {"user": ANN, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    {"user": ANN, "nonResourceAttributes": {"path": "/version", "verb": "get"}},
    {
        "user": ANN,
        "groups": ["system:unauthenticated"],
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
    },
)
REVIEWS = (
    probe(
        "may I",
        *granted(READ_MAPS),
        *ann(
            *(
                post(
                    SELF, review("SelfSubjectAccessReview", resourceAttributes={"namespace": "{ns}", **asked})
                )
                for asked in (
                    {"verb": "get", "resource": "configmaps"},
                    {"verb": "get", "resource": "configmaps", "name": "a", "version": "v1"},
                    {"verb": "list", "resource": "configmaps"},
                    {"verb": "get", "resource": "configmaps", "subresource": "status"},
                    {"verb": "get", "resource": "configmaps", "group": "apps"},
                    {"verb": "get", "resource": "configmaps", "namespace": ""},
                    {"verb": "*", "resource": "*", "group": "*"},
                    {"verb": "create", "resource": "selfsubjectreviews", "group": "authentication.k8s.io"},
                )
            )
        ),
    ),
    probe(
        "may I see a page",
        *ann(
            post(
                SELF,
                review("SelfSubjectAccessReview", nonResourceAttributes={"path": "/api/x", "verb": "get"}),
            ),
            post(
                SELF,
                review("SelfSubjectAccessReview", nonResourceAttributes={"path": "/metrics", "verb": "get"}),
            ),
            post(
                SELF,
                review("SelfSubjectAccessReview", nonResourceAttributes={"path": "/apis/x", "verb": "get"}),
            ),
        ),
    ),
    probe(
        "the administrator may",
        post(SELF, review("SelfSubjectAccessReview", resourceAttributes=PODS_ASKED)),
        post(SELF, review("SelfSubjectAccessReview", nonResourceAttributes={"path": "/x", "verb": "get"})),
    ),
    probe(
        "questions that cannot be answered",
        post(SELF, review("SelfSubjectAccessReview")),
        post(SELF, review("SelfSubjectAccessReview", resourceAttributes={}, nonResourceAttributes={})),
        post(
            SELF,
            review("SelfSubjectAccessReview", resourceAttributes=PODS_ASKED) | {"metadata": {"name": "x"}},
            loose="Go's",
        ),
        post(ASKED, review("SubjectAccessReview", resourceAttributes=PODS_ASKED)),
        post(ASKED, review("SubjectAccessReview")),
        post(SELF, review("SubjectAccessReview", resourceAttributes=PODS_ASKED)),
        get(SELF),
        delete(SELF),
        get(f"{SELF}/x"),
    ),
    probe(
        "may she",
        *granted(READ_MAPS),
        *(post(ASKED, review("SubjectAccessReview", **spec)) for spec in SUBJECTS),
        *ann(post(ASKED, review("SubjectAccessReview", user="bob", resourceAttributes=PODS_ASKED))),
    ),
    probe(
        "why she may",
        *granted(READ_MAPS),
        *granted_everywhere(rule("get", "secrets")),
        *given(
            post(
                BINDINGS,
                binding(
                    "r",
                    {"kind": "ServiceAccount", "name": "bot"} | {"namespace": "{ns}"},
                    {"kind": "Group", "name": "team"},
                    name="more",
                ),
            )
        ),
        may(READ_MAPS, user=BOT),
        *(
            post(
                ASKED,
                review(
                    "SubjectAccessReview",
                    resourceAttributes={"verb": "get", "namespace": "{ns}", **asked},
                    **who,
                ),
                show=("status",),
            )
            for asked, who in (
                ({"resource": "configmaps"}, {"user": ANN}),
                ({"resource": "configmaps"}, {"user": BOT}),
                ({"resource": "configmaps"}, {"user": "x", "groups": ["team"]}),
                ({"resource": "secrets"}, {"user": ANN}),
            )
        ),
    ),
    probe(
        "may she, with a role that is not there",
        *given(post(BINDINGS, binding("none", name="none"))),
        *granted(READ_MAPS),
        post(ASKED, review("SubjectAccessReview", user=ANN, resourceAttributes=PODS_ASKED)),
    ),
    probe(
        "may she, in one namespace",
        post(
            LOCAL,
            review("LocalSubjectAccessReview", user="bob", resourceAttributes=PODS_ASKED)
            | {"metadata": {"namespace": "{ns}"}},
        ),
        post(
            LOCAL,
            review(
                "LocalSubjectAccessReview",
                user="bob",
                resourceAttributes={**PODS_ASKED, "namespace": "default"},
            )
            | {"metadata": {"namespace": "{ns}"}},
        ),
        post(LOCAL, review("LocalSubjectAccessReview", user="bob", resourceAttributes=PODS_ASKED)),
        *ann(post(LOCAL, review("LocalSubjectAccessReview", user="bob", resourceAttributes=PODS_ASKED))),
    ),
    probe(
        "what may I",
        *granted(READ_MAPS, rule("get list", "pods pods/log", "core apps", "x")),
        *granted_everywhere(urls("get", "/foo"), rule("get", "nodes")),
        *ann(
            post(RULES, review("SelfSubjectRulesReview", namespace="{ns}")),
            post(RULES, review("SelfSubjectRulesReview", namespace="default")),
            post(RULES, review("SelfSubjectRulesReview", namespace="")),
            post(RULES, review("SelfSubjectRulesReview")),
        ),
    ),
    probe(
        "what may I, with a role that is not there",
        *given(post(BINDINGS, binding("none", name="none"))),
        *granted(READ_MAPS),
        *ann(
            post(
                RULES,
                review("SelfSubjectRulesReview", namespace="{ns}"),
                show=("status.incomplete", "status.evaluationError"),
            )
        ),
    ),
    probe(
        "what may the administrator",
        post(RULES, review("SelfSubjectRulesReview", namespace="{ns}"), show=("spec", "status.incomplete")),
    ),
    probe("who am I", who(), *ann(who()), who().but(bare=True), get(WHO), post(WHO, {}), post(WHO, "x")),
)

TOKENS_OF = (
    probe(
        "a token as it is given",
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})),
        post(TOKEN, token_request()),
        post(TOKEN, token_request(audiences=["a", "b"], expirationSeconds=7200)),
        post(TOKEN, {}),
        post(TOKEN, token_request(expirationSeconds=599)),
        post(TOKEN, token_request(expirationSeconds=2**32 + 1)),
        post(TOKEN, token_request() | {"metadata": {"name": "other"}}),
        post(TOKEN, token_request() | {"metadata": {"namespace": "other"}}),
        post(TOKEN, token_request() | {"metadata": {"uid": "other"}}),
        post(f"{ACCOUNTS}/none/token", token_request()),
        get(TOKEN),
    ),
    probe(
        "a token that is bound",
        *given(
            post(ACCOUNTS, {"metadata": {"name": "bot"}}),
            post(PODS, pod("p", serviceAccountName="bot")),
            post(PODS, pod("other")),
            post(SECRETS, {"metadata": {"name": "s"}}),
        ),
        *(
            post(TOKEN, token_request(boundObjectRef={"apiVersion": "v1", **bound}))
            for bound in (
                {"kind": "Pod", "name": "p"},
                {"kind": "Secret", "name": "s"},
                {"kind": "Pod", "name": "other"},
                {"kind": "Pod", "name": "none"},
                {"kind": "Secret", "name": "none"},
                {"kind": "Node", "name": "none"},
                {"kind": "ConfigMap", "name": "none"},
                {"kind": "Pod", "name": "p", "uid": "other"},
            )
        ),
    ),
    probe(
        "a token that is used",
        *bot(READ_MAPS),
        as_bot(who()),
        as_bot(get(f"{MAPS}/a")),
        as_bot(get(MAPS)),
        post(TOKENS, review("TokenReview", "authentication", token="{token}")),
    ),
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
        as_bot(
            who(),
        ).but(until=401),
    ),
    probe(
        "a token of a secret",
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}}), post(SECRETS, {"metadata": {"name": "s"}})),
        post(
            TOKEN,
            token_request(boundObjectRef={"apiVersion": "v1", "kind": "Secret", "name": "s"}),
            take={"token": "status.token"},
            show=(),
        ),
        as_bot(who()),
        *given(delete(f"{SECRETS}/s")),
        as_bot(who()).but(until=401),
        post(TOKENS, review("TokenReview", "authentication", token="{token}")),
    ),
    probe(
        "a token for others",
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})),
        post(TOKEN, token_request(audiences=["vault"]), take={"token": "status.token"}, show=()),
        as_bot(who()),
        as_bot(get("/healthz")),
        post(TOKENS, review("TokenReview", "authentication", token="{token}")),
        post(TOKENS, review("TokenReview", "authentication", token="{token}", audiences=["vault", "other"])),
        post(TOKENS, review("TokenReview", "authentication", token="{token}", audiences=["other"])),
    ),
    probe(
        "a token of an account that is gone",
        *bot(),
        *given(delete(f"{ACCOUNTS}/bot")),
        as_bot(who()).but(until=401),
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})),
        as_bot(who()),
    ),
    probe(
        "tokens that are none",
        post(TOKENS, review("TokenReview", "authentication", token="none")),
        post(TOKENS, review("TokenReview", "authentication", token="")),
        post(TOKENS, review("TokenReview", "authentication")),
        *ann(post(TOKENS, review("TokenReview", "authentication", token="none"))),
    ),
    probe(
        "who may ask for tokens",
        *given(post(ACCOUNTS, {"metadata": {"name": "bot"}})),
        *granted(rule("create", "serviceaccounts/token", "", "bot")),
        *ann(
            post(TOKEN, token_request(), show=("kind",)), post(f"{ACCOUNTS}/default/token", token_request())
        ),
    ),
)
PROBES: tuple[Probe, ...] = (*IMPERSONATION, *REVIEWS, *TOKENS_OF)
