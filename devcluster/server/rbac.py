"""Rules of roles: what one permits, whom a binding means, what of some rules others do not cover."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from elasticjob.devcluster.server.asking import User
from elasticjob.devcluster.server.wish import Wish

Rule = Mapping[str, Any]
_PARTS = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
    ("verbs", "Verbs"),
)


def permits(rule: Rule, wish: Wish) -> bool:
    """Whether one rule is enough for a wish."""
    if not _among(wish.verb, rule.get("verbs")):
        return False
    if wish.path:
        return any(_is_of_path(wish.path, each) for each in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    return (
        _among(wish.group, rule.get("apiGroups"))
        and _is_of_resource(wish.combined, rule.get("resources") or ())
        and (not names or wish.name in names)
    )


def is_meant(subject: Rule, user: User, namespace: str) -> bool:
    """Whether a subject of a binding in this namespace is the user."""
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        place = subject.get("namespace") or namespace
        return bool(place) and user.name == f"system:serviceaccount:{place}:{name}"
    return name in user.groups if kind == "Group" else kind == "User" and name == user.name


def subject_told(subject: Rule, namespace: str) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def uncovered(owned: Sequence[Rule], asked: Iterable[Rule]) -> list[str]:
    """What of the rules asked no rule owned covers, as refusals tell it: sorted, verbs taken together."""
    atoms = (atom for rule in asked for atom in _atoms(rule))
    verbs: dict[Wish, list[str]] = {}
    for atom in atoms:
        if not any(_covers(each, atom) for each in owned):  # those of paths stay single
            verbs.setdefault(atom if atom.path else replace(atom, verb=""), []).append(atom.verb)
    return sorted({_told(atom, found) for atom, found in verbs.items()})


def _covers(rule: Rule, atom: Wish) -> bool:
    """Whether a rule gives all of a right: one for some names, be it the empty one, never gives all names."""
    return bool(atom.path or atom.name or not rule.get("resourceNames")) and permits(rule, atom)


def _atoms(rule: Rule) -> Iterator[Wish]:
    """The smallest rights of a rule: one verb on one resource and one name (or all), or on one path."""
    verbs = rule.get("verbs") or ()
    for group, resource, verb in product(rule.get("apiGroups") or (), rule.get("resources") or (), verbs):
        yield from (Wish(verb, group, resource, name=name) for name in rule.get("resourceNames") or ("",))
    for path, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield Wish(verb, path=path)


def _told(atom: Wish, verbs: list[str]) -> str:
    rule = {"verbs": verbs}
    if atom.path:
        rule["nonResourceURLs"] = [atom.path]
    else:
        rule |= {"apiGroups": [atom.group], "resources": [atom.resource]}
        rule |= {"resourceNames": [atom.name]} if atom.name else {}
    return "{" + ", ".join(f"{title}:{quoted(rule[name])}" for name, title in _PARTS if name in rule) + "}"


def quoted(words: Iterable[str]) -> str:
    """A list of texts as Go prints it."""
    return "[" + " ".join(json.dumps(word, ensure_ascii=False) for word in words) + "]"


def _among(value: str, allowed: Sequence[str] | None) -> bool:
    return allowed is not None and ("*" in allowed or value in allowed)


def _is_of_resource(resource: str, allowed: Sequence[str]) -> bool:
    _, slash, subresource = resource.partition("/")
    return _among(resource, allowed) or (bool(slash) and f"*/{subresource}" in allowed)


def _is_of_path(path: str, allowed: str) -> bool:
    return path == allowed or (allowed.endswith("*") and path.startswith(allowed.rstrip("*")))
