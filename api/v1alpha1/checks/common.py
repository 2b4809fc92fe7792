"""Checks that several kinds share: names, resources, nodes of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from elasticjob.api.resources import MalformedQuantity, Raw, Resources, unit
from elasticjob.kube.objects.problem import Problem

LONGEST_NAME: Final = 63
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_LABEL_OF_A_SERVICE: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_label(name: str) -> bool:
    """Whether a name is a DNS label, as pod names require."""
    return len(name) <= LONGEST_NAME and DNS_LABEL.fullmatch(name) is not None


LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
LONGEST_PREFIX: Final = 253


def label_problems(path: str, labels: Mapping[str, str]) -> Iterator[Problem]:
    """Check keys ([prefix/]name) and values as the server does for labels and node selectors."""
    for key, value in labels.items():
        if not is_qualified(key):
            yield Problem(
                f"{path}[{key}]",
                f"{key!r} is not a label's key: write letters, digits and inner - _ ., at most "
                f"{LONGEST_NAME}, such as example.org/team",
            )
        if value and not _is_label_name(value):
            yield Problem(
                f"{path}[{key}]",
                f"{value!r:.80} is not a label's value: write letters, digits and inner - _ ., at most "
                f"{LONGEST_NAME}",
            )


CONTROLLER_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def is_controller(name: str) -> bool:
    """Whether a name is <domain>/<path>, as managedBy of a Job is."""
    domain, _, path = name.partition("/")
    return len(name) <= LONGEST_NAME and _is_prefix(domain) and CONTROLLER_PATH.fullmatch(path) is not None


def is_qualified(name: str) -> bool:
    """Whether a name is [prefix/]name, as labels and resources have."""
    prefix, slash, last = name.rpartition("/")
    return _is_label_name(last) and (not slash or _is_prefix(prefix))


def _is_label_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and LABEL_NAME.fullmatch(name) is not None


def _is_prefix(prefix: str) -> bool:
    parts = prefix.split(".")
    return len(prefix) <= LONGEST_PREFIX and all(DNS_LABEL.fullmatch(part) for part in parts)


def name_problems(path: str, name: str) -> Iterator[Problem]:
    """Check that `name` can be an object's name; a `//` comment in YAML gets a hint."""
    if "//" in name or "#" in name:
        yield Problem(
            path, f"{name!r} is not a name: YAML comments start with ' #', '//' is part of the value"
        )
    elif not is_label(name):
        yield Problem(
            path, f"{name!r} is not a name: write at most 63 small letters, digits and inner dashes"
        )


def resource_problems(path: str, resource: Mapping[str, Raw]) -> Iterator[Problem]:
    """Check for malformed, negative and excessive quantities."""
    for name, raw in resource.items():
        here = f"{path}[{name}]"
        try:
            amount = unit(name).parse(raw)
        except MalformedQuantity as error:
            yield Problem(here, str(error))
            continue
        if amount.value < 0:
            yield Problem(here, f"{raw} is negative: write 0 or more")
        elif name == "memory" and 0 < amount.value < 1024:
            meant = str(raw).rstrip("m")
            yield Problem(here, f"{raw} is less than 1 KiB of memory: write {meant}Mi, or leave it out")


STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
HUGE_PAGES: Final = "hugepages-"
DEVICES: Final = "nvidia.com/gpu"


def resource_name_problems(path: str, names: Iterable[str]) -> Iterator[Problem]:
    """Check names of resources as the server does in containers: all but the standard ones have a domain."""
    every = f"{', '.join(STANDARD)}, {HUGE_PAGES}<size>, or one with a domain, such as {DEVICES}"
    for name in (each for each in names if not _is_resource(each)):
        near = get_close_matches(name[:LONGEST_NAME].lower(), STANDARD, 1, 0.8)
        better = DEVICES if name == "gpu" else near[0] if near else every
        yield Problem(f"{path}[{name}]", f"{name!r:.80} is not a resource of containers: write {better}")


def _is_resource(name: str) -> bool:
    if "/" not in name:
        return name in STANDARD or (name.startswith(HUGE_PAGES) and is_qualified(name))
    return is_qualified(name) and not name.startswith("requests.")


def parse_amounts(resource: Mapping[str, Raw]) -> Resources | None:
    """Return the amounts, or None if a quantity is malformed (reported by resource_problems)."""
    try:
        return Resources.parse(resource)
    except MalformedQuantity:
        return None


@dataclass(frozen=True)
class Node:
    """A place in a job, parsed from the name of a node or of one of its pods."""

    role: str
    index: int
    relaunch: int = 0


def node(job: str, roles: Iterable[str], name: str) -> Node | None:
    """Parse `name` (<job>-<role>-<index>, or with a relaunch number); None if it is not of this job."""
    for role in roles:
        found = re.fullmatch(
            rf"{re.escape(job)}-{re.escape(role)}-(0|[1-9]\d{{0,6}})(?:-([1-9]\d{{0,6}}))?", name
        )
        if found is not None:
            return Node(role, int(found[1]), int(found[2] or 0))
    return None


def node_problems(path: str, name: str, job: str, roles: Iterable[str]) -> Iterator[Problem]:
    """Check that `name` is a node of the job, in one of its roles."""
    if node(job, roles, name) is None:
        wanted = " or ".join(f"{job}-{role}-<index>" for role in roles)
        yield Problem(path, f"{name!r} is not a node of job {job}: write {wanted}")


def volume_problems(path: str, volumes: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Find volumes without a name, and names that are none, or are there twice."""
    seen = set[str]()
    for index, volume in enumerate(volumes):
        name, at = volume.get("name"), f"{path}[{index}].name"
        if not isinstance(name, str) or not name:
            yield Problem(at, "is missing: volumes are mounted by their names")
        elif not is_label(name):
            what = f"{name!r} is not the name of a volume: write small letters, digits and inner dashes"
            yield Problem(at, what)
        elif name in seen:
            yield Problem(at, f"two volumes are called {name}: rename one")
        else:
            seen.add(name)


def duplicate_problems(path: str, names: Iterable[str]) -> Iterator[Problem]:
    """Check for names that are in a list twice."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield Problem(f"{path}[{index}].name", f"{name!r} is in the list twice: leave one out")
        seen.add(name)
