"""Review kinds, answered but never stored: SelfSubjectReview, SubjectAccessReview, TokenReview and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from elasticjob.devcluster.server.auth.attributes import RequestAttributes
from elasticjob.devcluster.server.auth.rbac import Rule
from elasticjob.devcluster.server.auth.tokens import Verdict
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import User
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.schemas import builtin_definitions
from elasticjob.devcluster.server.model.store import Manifest

Answer = Callable[[Manifest, User], Manifest]
"""A review as it was sent, and its user → the members that the answer replaces."""
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_KINDS = (
    (_AUTHENTICATION, "SelfSubjectReview", False),
    (_AUTHENTICATION, "TokenReview", False),
    (_AUTHENTICATION, "TokenRequest", True),
    (_AUTHORIZATION, "LocalSubjectAccessReview", True),
    (_AUTHORIZATION, "SelfSubjectAccessReview", False),
    (_AUTHORIZATION, "SelfSubjectRulesReview", False),
    (_AUTHORIZATION, "SubjectAccessReview", False),
)


class AccessVerdict(Protocol):
    """The verdict on an access review, and its reason."""

    @property
    def allowed(self) -> bool: ...

    @property
    def why(self) -> str: ...


class Tokens(Protocol):
    """The user of a token."""

    def user_of(self, token: str) -> User | None: ...
    def verdict(self, token: str, audiences: Sequence[str]) -> Verdict: ...


class Authority(Protocol):
    """The rules of a user."""

    def decide(self, user: User, attributes: RequestAttributes) -> AccessVerdict: ...
    def rules_of(self, user: User, namespace: str) -> tuple[Sequence[Rule], str]: ...


def review_resources() -> dict[str, Resource]:
    """Plural → the resource of a kind that is asked."""
    schemas = {
        (each["group"], each["kind"]): schema
        for schema in builtin_definitions().values()
        for each in schema.get("x-kubernetes-group-version-kind") or ()
        if each["version"] == "v1"
    }
    return {
        f"{kind.lower()}s": Resource(group, "v1", kind, f"{kind.lower()}s", schemas[group, kind], namespaced)
        for group, kind, namespaced in _KINDS
    }


def user_info(user: User) -> Manifest:
    """A user, as reviews show it."""
    parts = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra},
    }
    return {name: value for name, value in parts.items() if value}


def answers(tokens: Tokens, authority: Authority, stamp: Callable[[], str]) -> Mapping[str, Answer]:
    """Plural → the handler of a review. Handlers raise Invalid or BadRequest for malformed reviews."""

    def who(_: Manifest, user: User) -> Manifest:
        return {"metadata": {"creationTimestamp": stamp()}, "status": {"userInfo": user_info(user)}}

    def token(review: Manifest, _: User) -> Manifest:
        spec = review.get("spec") or {}
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        found = tokens.verdict(spec["token"], spec.get("audiences") or ())
        if found.user is None:
            return {"status": {"user": {}, "error": found.problem}}
        audiences = list(found.audiences)
        return {"status": {"authenticated": True, "user": user_info(found.user), "audiences": audiences}}

    def own_access(review: Manifest, user: User) -> Manifest:
        spec = _check(review, _attribute_problems)
        return {"status": _status(authority.decide(user, _attributes(spec)))}

    def access(review: Manifest, _: User) -> Manifest:
        spec = _check(review, _subject_problems)
        subject = User(spec.get("user") or "", tuple(spec.get("groups") or ()))
        return {"status": _status(authority.decide(subject, _attributes(spec)))}

    def rules(review: Manifest, user: User) -> Manifest:
        namespace = (review.get("spec") or {}).get("namespace")
        if not namespace:
            raise errors.bad_request("no namespace on request")
        found, lost = authority.rules_of(user, namespace)
        status = {
            "resourceRules": [_without(rule, "nonResourceURLs") for rule in found if rule.get("resources")],
            "nonResourceRules": [
                {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
                for rule in found
                if rule.get("nonResourceURLs")
            ],
            "incomplete": False,
        }
        return {"metadata": {}, "spec": {}, "status": status | ({"evaluationError": lost} if lost else {})}

    return {
        "selfsubjectreviews": who,
        "tokenreviews": token,
        "selfsubjectaccessreviews": own_access,
        "subjectaccessreviews": access,
        "localsubjectaccessreviews": access,
        "selfsubjectrulesreviews": rules,
    }


def _check(review: Manifest, problems: Callable[[Manifest], Iterator[Cause]]) -> Manifest:
    """The spec of a review of access, or Invalid."""
    spec: Manifest = review.setdefault("spec", {})
    found = [*problems(spec), *_metadata_problems(review), *_place_problems(review, spec)]
    if found:
        raise errors.invalid(_AUTHORIZATION, "", "", found)
    if asked := spec.get("resourceAttributes"):
        spec["resourceAttributes"] = {name: value for name, value in asked.items() if value}
    return spec


def _attribute_problems(spec: Manifest) -> Iterator[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
        yield wrong(
            "spec.nonResourceAttributes", shown, "cannot be specified in combination with resourceAttributes"
        )
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield wrong("spec.resourceAttributes", None, why)


def _subject_problems(spec: Manifest) -> Iterator[Cause]:
    yield from _attribute_problems(spec)
    if not spec.get("user") and not spec.get("groups"):
        yield wrong("spec.user", "", "at least one of user or group must be specified")


def _metadata_problems(review: Manifest) -> Iterator[Cause]:
    named = _without(review["metadata"], "namespace", "managedFields")
    if any(named.values()):
        yield wrong("metadata", named, "must be empty")


def _place_problems(review: Manifest, spec: Manifest) -> Iterator[Cause]:
    """A question about one namespace is asked in it."""
    if not review["kind"].startswith("Local"):
        return
    asked = (spec.get("resourceAttributes") or {}).get("namespace") or ""
    if spec.get("resourceAttributes") is not None and asked != review["metadata"]["namespace"]:
        yield wrong("spec.resourceAttributes.namespace", asked, "must match metadata.namespace")
    if spec.get("nonResourceAttributes") is not None:
        shown = spec["nonResourceAttributes"]
        yield wrong("spec.nonResourceAttributes", shown, "disallowed on this kind of request")


def _attributes(spec: Manifest) -> RequestAttributes:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return RequestAttributes(path.get("verb") or "", path=path.get("path") or "/")
    asked: dict[str, Any] = spec["resourceAttributes"]
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return RequestAttributes(*(asked.get(name) or "" for name in names))


def _status(decided: AccessVerdict) -> Manifest:
    return {"allowed": decided.allowed} | ({"reason": decided.why} if decided.why else {})


def _without(members: Mapping[str, Any], *names: str) -> Manifest:
    return {name: value for name, value in members.items() if name not in names}
