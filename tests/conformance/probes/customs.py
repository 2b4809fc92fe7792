"""Objects of custom resources: validation, pruning, defaults, rules, what is strict and what is ratcheted."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

Z = "x-kubernetes-validations"
TWICE = (
    '{"apiVersion":"{group}/v1","kind":"Thing","metadata":{"name":"NAME"},"spec":{"replicas":1,"replicas":2}}'
)


def sent(name: str, spec: Any, *, schema: Any = None, **more: Any) -> Probe:
    return probe(name, *defined(schema), post(THINGS, thing("one", spec), **{"show": ("spec",), **more}))


def ruled(name: str, rule: Any, *steps: Any, **properties: Any) -> Probe:
    spec = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "m": {"type": "integer"},
            "s": {"type": "string", "maxLength": 20},
            "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
            "map": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
            **properties,
        },
        Z: rule if isinstance(rule, list) else [rule if isinstance(rule, dict) else {"rule": rule}],
    }
    return probe(f"rule: {name}", *defined(spec), *steps)


def made(**spec: Any) -> Any:
    return post(THINGS, thing("one", spec), show=("spec",))


def changed(**spec: Any) -> Any:
    return patch("merge", THING, {"spec": spec}, show=("spec",))


PROBES: tuple[Probe, ...] = (
    probe("a custom resource", *defined(), post(THINGS, thing("one", {"replicas": 1, "note": "x"})),
          get(THING)),
    sent("a bad enum", {"mode": "odd"}),
    sent("too small", {"replicas": -1}),
    sent("too large", {"replicas": 100}),
    sent("a wrong type", {"replicas": "x"}),
    sent("a fraction", {"replicas": 1.5}),
    sent("a whole fraction", {"replicas": 1.0}),
    sent("a large number", {"replicas": 2**40}),
    sent("too long", {"note": "x" * 11}),
    sent("too many", {"plain": ["a", "b", "c", "d"]}),
    sent("no date", {"when": "tomorrow"}),
    sent("a date", {"when": "2020-01-02T03:04:05Z"}),
    sent("a port that is a flag", {"port": True}),
    sent("ports", {"port": "web"}),
    sent("a tag twice", {"tags": ["a", "a"]}),
    sent("a part twice", {"parts": [{"name": "a"}, {"name": "a"}]}),
    sent("a part without a name", {"parts": [{"size": 1}]}),
    sent("a label that is a number", {"labels": {"a": 1}}),
    sent("several problems", {"replicas": "x", "mode": "odd", "plain": 7}, show=None),
    sent("a null that may be", {"note": None}),
    sent("a null that may not be", {"replicas": None}),
    sent("a null with a default", {"mode": None}),
    sent("a null in a list", {"plain": ["a", None]}),
    sent("a null among labels", {"labels": {"a": None}}),
    sent("unknown fields", {"bogus": 1, "parts": [{"name": "a", "odd": 1}], "free": {"any": {"thing": [1]}}}),
    sent("unknown fields, strictly", {"bogus": 1, "parts": [{"name": "a", "odd": 1}]},
         fieldValidation="Strict"),
    sent("unknown fields, ignored", {"bogus": 1}, fieldValidation="Ignore"),
    sent("defaults in a list", {"parts": [{"name": "a"}]}),
    sent("a spec that is a text", "x"),
    probe("no spec", *defined(), post(THINGS, thing("one"))),
    probe("unknown fields at the root", *defined(), post(THINGS, thing("one", {}, bogus=1)),
          post(THINGS, thing("two", {}, bogus=1), fieldValidation="Strict")),
    probe("unknown metadata", *defined(),
          post(THINGS, thing("one", {}) | {"metadata": {"name": "one", "bogus": 1}}, show=("metadata.name",)),
          post(THINGS, thing("two", {}) | {"metadata": {"name": "two", "bogus": 1}},
               fieldValidation="Strict")),
    probe("labels that are numbers", *defined(),
          post(THINGS, thing("one", {}) | {"metadata": {"name": "one", "labels": {"a": 1}}})),
    probe(
        "a name twice",
        *defined(),
        post(THINGS, Raw(TWICE.replace("NAME", "one")), show=("spec",)),
        post(THINGS, Raw(TWICE.replace("NAME", "two")), fieldValidation="Strict"),
    ),
    probe("no kind", *defined(), post(THINGS, {"apiVersion": "{group}/v1", "metadata": {"name": "one"}}),
          post(THINGS, {"kind": "Thing", "metadata": {"name": "one"}})),
    probe("another kind", *defined(), post(THINGS, thing("one", {}) | {"kind": "Other"})),
    probe("a bad name", *defined(), post(THINGS, thing("One_", {}))),
    probe("an update without a version", *stored({}),
          put(THING, thing("one", {"replicas": 2}))),
    probe("an update of a bad label", *stored({}),
          patch("merge", THING, {"metadata": {"labels": {"a": "b c"}}})),
    probe("an update of another uid", *stored({}),
          patch("merge", THING, {"metadata": {"uid": "other"}})),
    probe("a short finalizer", *defined(),
          post(THINGS, thing("one", {}) | {"metadata": {"name": "one", "finalizers": ["hold"]}},
               show=("metadata.finalizers",)),
          patch("merge", THING, {"metadata": {"finalizers": []}}, show=("metadata.finalizers",))),
    ruled("holds", "self.n > 0", made(n=1)),
    ruled("fails", "self.n > 0", made(n=0)),
    ruled("says why", {"rule": "self.n > 0", "message": "n must be positive"}, made(n=0)),
    ruled("says why by expression",
          {"rule": "self.n > 0", "messageExpression": "'n is ' + (self.n < 0 ? 'below' : 'not above')"},
          made(n=0)),
    ruled("an expression that fails",
          {"rule": "self.n > 0", "message": "plain",
           "messageExpression": "'x' + (1 / self.n > 0 ? 'y' : 'z')"}, made(n=0)),
    ruled("a reason and a path",
          {"rule": "self.n > 0", "reason": "FieldValueForbidden", "fieldPath": ".n", "message": "no"},
          made(n=0)),
    ruled("a required reason",
          {"rule": "has(self.m)", "reason": "FieldValueRequired", "fieldPath": ".m", "message": "say m"},
          made(n=0)),
    ruled("a duplicate reason", {"rule": "self.n != 1", "reason": "FieldValueDuplicate", "message": "dup"},
          made(n=1)),
    ruled("has", "has(self.n) || has(self.m)", made(s="x")),
    ruled("of texts", "self.s.startsWith('a') && self.s.matches('^[a-c]+$')", made(s="abd")),
    ruled("of lists", "self.l.all(x, x.size() > 1) && size(self.l) < 3", made(l=["a"])),
    ruled("of maps", "self.map.all(k, self.map[k] > 0)", made(map={"a": 0})),
    ruled("two rules",
          [{"rule": "self.n > 0", "message": "first"}, {"rule": "self.m > 0", "message": "second"}],
          made(n=0, m=0)),
    ruled("not asked of what is malformed", "self.n > 0", made(n="x")),
    ruled("a transition", {"rule": "self.n >= oldSelf.n", "message": "n may only grow"}, made(n=5),
          changed(n=6), changed(n=5), changed(m=1)),
    ruled("optional old self",
          {"rule": "!oldSelf.hasValue() || self.n >= oldSelf.value().n", "optionalOldSelf": True,
           "message": "only grow"}, made(n=5), changed(n=4), changed(n=6)),
    ruled("optional old self on create",
          {"rule": "oldSelf.hasValue()", "optionalOldSelf": True, "message": "never made"}, made(n=5)),
    ruled("on a field", "true", made(n=1, field=0), field={"type": "integer", Z: [{"rule": "self > 0"}]}),
    ruled("on a field that is a text", "true", made(n=1, field="b"),
          field={"type": "string", Z: [{"rule": "self == 'a'"}]}),
    ruled("on elements", "true", made(items=[{"a": 1}, {"a": 0}]),
          items={"type": "array", "maxItems": 5,
                 "items": {"type": "object", "properties": {"a": {"type": "integer"}},
                           Z: [{"rule": "self.a > 0"}]}}),
    ruled(
        "a transition on a keyed element",
        "true",
        made(items=[{"k": "x", "a": 2}]),
        changed(items=[{"k": "y", "a": 1}, {"k": "x", "a": 1}]),
        items={
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string", "maxLength": 5}, "a": {"type": "integer"}},
                Z: [{"rule": "self.a >= oldSelf.a"}],
            },
        },
    ),
    ruled("immutable", "true", made(fixed="a"), changed(fixed="b"), changed(fixed=None),
          fixed={"type": "string", Z: [{"rule": "self == oldSelf", "message": "fixed is immutable"}]}),
    ruled("ratcheted", "true", made(n=1)),
)  # fmt: skip
