"""Admission webhooks: what they are sent, what they may change, refuse, warn of; what happens when they
fail.
"""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

HOOKS = "/apis/admissionregistration.k8s.io/v1"
VALIDATING, MUTATING = f"{HOOKS}/validatingwebhookconfigurations", f"{HOOKS}/mutatingwebhookconfigurations"
A = config_map("a", {"x": "1"})
OWN = {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}
ALL = [
    {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["configmaps", "things", "things/status", "things/scale"],
    }
]
MARKER: dict[str, Any] = {"name": "marker.example.com", "objectSelector": {"matchLabels": {"marker": "yes"}}}


def hook(how: str, _name: str = "", **more: Any) -> dict[str, Any]:
    """A webhook of the probe's namespace, answered as `how` says."""
    selector = {"matchExpressions": [{"key": "marker", "operator": "DoesNotExist"}]}
    return {
        "name": _name or f"{how}.example.com",
        "clientConfig": {"url": f"{{hook}}/{how}", "caBundle": "{ca}"},
        "rules": ALL,
        "namespaceSelector": OWN,
        "objectSelector": selector,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1 if how == "slow" else 30,
        **more,
    }


def with_hooks(kind: str, *hooks: dict[str, Any]) -> tuple[Step, ...]:
    """Steps after which these webhooks are asked: a marker among them refuses a dry creation."""
    path = VALIDATING if kind == "Validating" else MUTATING
    asked = [*hooks, hook("deny", **MARKER)]
    all_ = body(f"{kind}WebhookConfiguration", "{ns}", "admissionregistration.k8s.io/v1", webhooks=asked)
    marker = config_map("marker", labels={"marker": "yes"})
    return (post(path, all_, show=()), post(MAPS, marker, dryRun="All", until=400, show=()))


def validated(name: str, *hooks: dict[str, Any], steps: tuple[Step, ...] = ()) -> Probe:
    return probe(
        name,
        *with_hooks("Validating", *hooks),
        *(steps or (post(MAPS, A), get(ONE, show=("metadata.name",)))),
    )


def mutated(name: str, *hooks: dict[str, Any], steps: tuple[Step, ...] = ()) -> Probe:
    shown = post(MAPS, A, show=("metadata.labels", "metadata.managedFields", "data"))
    return probe(name, *with_hooks("Mutating", *hooks), *(steps or (shown,)))


def reviews(how: str) -> Step:
    return Step("REVIEWS", f"{{hook}}/{how}")


def configured(name: str, *, show: tuple[str, ...] | None = None, **hook: Any) -> Probe:
    """A configuration whose webhook has a name and these fields, and no more."""
    hooks = [{"name": "a.example.com"} | hook]
    return probe(name, post(VALIDATING, {"metadata": {"name": "{ns}"}, "webhooks": hooks}, show=show))


WELL: dict[str, Any] = {"admissionReviewVersions": ["v1"], "sideEffects": "None"}
BROKEN: dict[str, Any] = {"failurePolicy": "Ignore"}
CONDITION: dict[str, Any] = {"matchConditions": [{"name": "big", "expression": "object.data.x == '1'"}]}

PROBES: tuple[Probe, ...] = (
    validated("allowed", hook("allow")),
    validated("what a webhook is sent", hook("allow"),
              steps=(*given(post(MAPS, A)), reviews("allow"),
                     *given(patch("merge", ONE, {"data": {"x": "2"}})), reviews("allow"), *given(delete(ONE)),
                     reviews("allow"))),
    validated("what a webhook is sent of a dry run", hook("allow"),
              steps=(*given(post(MAPS, A, dryRun="All")), reviews("allow"))),
    validated("denied", hook("deny")),
    validated("denied in detail", hook("deny-in-detail")),
    validated("denied in silence", hook("deny-in-silence")),
    validated("denied twice", hook("deny", "a.example.com"), hook("deny", "b.example.com"),
              steps=(post(MAPS, A),)),
    validated("a denied deletion", hook("deny", rules=[{**ALL[0], "operations": ["DELETE"]}]),
              steps=(*given(post(MAPS, A)), delete(ONE), get(ONE, show=("metadata.name",)))),
    validated("warnings", hook("warn")),
    validated("warnings of a deletion", hook("warn", rules=[{**ALL[0], "operations": ["DELETE"]}]),
              steps=(*given(post(MAPS, A)), delete(ONE))),
    validated("a broken webhook", hook("broken")),
    validated("a broken webhook that may be", hook("broken", **BROKEN)),
    validated("no JSON", hook("not-json"), steps=(post(MAPS, A),)),
    validated("another uid", hook("other-uid")),
    validated("too slow", hook("slow"), steps=(post(MAPS, A),)),
    validated("too slow, which may be", hook("slow", **BROKEN)),
    validated("nobody listens",
              hook("allow", clientConfig={"url": "https://127.0.0.1:1/x", "caBundle": "{ca}"}),
              steps=(post(MAPS, A),)),
    validated("a patch of a validating webhook", hook("label")),
    validated("a service that is not there",
              hook("allow", timeoutSeconds=1,
                   clientConfig={"service": {"name": "none", "namespace": "{ns}"}, "caBundle": "{ca}"})),
    validated("a condition that holds", hook("deny", **CONDITION)),
    validated("a condition that does not", hook("deny", **CONDITION),
              steps=(post(MAPS, config_map("a", {"x": "2"}), show=("data",)),)),
    validated("a condition that fails", hook("deny", **CONDITION),
              steps=(post(MAPS, config_map("a"), show=("data",)),)),
    validated("side effects and a dry run", hook("allow", sideEffects="None", name="none.example.com"),
              steps=(post(MAPS, A, dryRun="All", show=("data",)),)),
    validated("by another version of the rule", hook("deny", rules=[{**ALL[0], "apiVersions": ["v2"]}])),
    validated("of another scope", hook("deny", rules=[{**ALL[0], "scope": "Cluster"}])),
    mutated("a label", hook("label")),
    mutated("two webhooks", hook("count", "a.example.com"), hook("count", "b.example.com")),
    mutated("asked again", hook("count", reinvocationPolicy="IfNeeded"), hook("late")),
    mutated("not asked again", hook("count"), hook("late")),
    mutated("a label that is none", hook("bad-label"), steps=(post(MAPS, A),)),
    mutated("a patch that does not fit", hook("bad-patch"), steps=(post(MAPS, A),)),
    mutated("a patch without a type", hook("no-type"), steps=(post(MAPS, A),)),
    mutated("a mutating webhook denies", hook("deny"), steps=(post(MAPS, A),)),
    mutated("a mutating webhook warns", hook("warn"), steps=(post(MAPS, A, show=("data",)),)),
    mutated("what a mutating webhook is sent", hook("label"),
            steps=(*given(post(MAPS, A)), reviews("label"))),
    probe("mutated custom resources", *defined(), *with_hooks("Mutating", hook("replicas")),
          post(THINGS, thing("one", {"replicas": 1}), show=("spec", "metadata.managedFields")),
          patch("merge", THING, {"spec": {"note": "x"}}, show=("spec", "metadata.generation"))),
    probe("custom resources mutated into nonsense", *defined(),
          *with_hooks("Mutating", hook("replicas-text")), post(THINGS, thing("one", {"replicas": 1}))),
    probe("custom resources mutated into unknown fields", *defined(),
          *with_hooks("Mutating", hook("unknown-field")),
          post(THINGS, thing("one", {"replicas": 1}), show=("spec",))),
    probe("what is sent of a custom resource", *defined(), *with_hooks("Validating", hook("allow")),
          *given(post(THINGS, thing("one", {"replicas": 1}))), reviews("allow"),
          *given(patch("merge", f"{THING}/status", {"status": {"phase": "x"}})), reviews("allow"),
          *given(patch("merge", f"{THING}/scale", {"spec": {"replicas": 3}})), reviews("allow")),
    probe("schema before validating webhooks", *defined(), *with_hooks("Validating", hook("deny")),
          post(THINGS, thing("one", {"replicas": "x"}))),
    configured("a configuration with defaults", show=("webhooks",),
               clientConfig={"service": {"name": "s", "namespace": "{ns}"}},
               rules=[{**ALL[0], "resources": ["none"]}], **WELL),
    configured("a configuration with nothing"),
    configured("a configuration with side effects", clientConfig={"url": "http://x"},
               admissionReviewVersions=["v2"], sideEffects="Some", timeoutSeconds=60, failurePolicy="Maybe"),
)  # fmt: skip
