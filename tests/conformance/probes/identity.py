"""Who asks: tokens of service accounts, and reviews of them."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import Body, pod
from tests.conformance.probe import CORE, MAPS, PODS, Probe, Step, delete, get, given, post, probe
from tests.conformance.probes.access import (
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
    may,
    role,
)

AUTHENTICATION = "/apis/authentication.k8s.io/v1"
WHO, TOKENS = f"{AUTHENTICATION}/selfsubjectreviews", f"{AUTHENTICATION}/tokenreviews"
ACCOUNTS = f"{CORE}/serviceaccounts"
TOKEN = f"{ACCOUNTS}/bot/token"


def review(kind: str, group: str = "authorization", **spec: Any) -> Body:
    body: Body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind}
    return body | ({"spec": spec} if spec else {})


def who() -> Step:
    return post(WHO, review("SelfSubjectReview", "authentication"))


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


def as_bot(step: Step) -> Step:
    return step.with_token("{token}")


PROBES: tuple[Probe, ...] = (
    probe("who am I", who(), *ann(who()), who().but(bare=True), get(WHO), post(WHO, {}), post(WHO, "x")),
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
)
