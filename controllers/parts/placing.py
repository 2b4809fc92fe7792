"""Machines that a pod is not to be placed on, in its node affinity."""

from __future__ import annotations

from elasticjob.kube.objects.kinds import Manifest


def away_from(affinity: Manifest, never: tuple[str, ...], rather_not: tuple[str, ...] = ()) -> Manifest:
    """Return `affinity`, where all alternatives are closed for the machines `never`.

    Of the others, those of `rather_not` come last: there may be no other one.
    """
    node: Manifest = affinity.get("nodeAffinity") or {}
    required: Manifest = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or []), *_not(never)]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    closed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}} if never else {}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    last = {"weight": 100, "preference": {"matchFields": _not(rather_not)}}
    preferred = {name: [*(node.get(name) or []), last]} if rather_not else {}
    return {**affinity, "nodeAffinity": {**node, **closed, **preferred}}


def _not(machines: tuple[str, ...]) -> list[Manifest]:
    return [{"key": "metadata.name", "operator": "NotIn", "values": [machine]} for machine in machines]
