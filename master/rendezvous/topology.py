"""Where the nodes of a world are, and the order of ranks that follows from it.

1. Nodes of one group (an NVLink domain) have contiguous ranks, groups follow by their ids, nodes without a
group come last.
2. Within a group, nodes behind one access switch (a rack) have contiguous ranks.
3. Rank 0 is the oldest member, whose model the others take: its group and its switch come first.
4. Apart from that, and without labels, the order stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from elasticjob.api.sentences import few
from elasticjob.master.state.job import Job, Spot
from elasticjob.master.state.node import Node

WORKER: Final = "worker"
"""The role whose nodes have groups."""
GROUP, GROUPS, RACK = "scheduling/rack-group", "scheduling/rack-group-num", "scheduling/rack-id"
"""Labels of pods: the id of the group, the number of groups, and the name of the rack."""


def spot_of(role: str, labels: Mapping[str, str]) -> Spot | None:
    """Return where a pod is, None if its labels do not say."""
    spot = Spot(
        group=_number(labels.get(GROUP)), groups=_number(labels.get(GROUPS)), rack=labels.get(RACK, "")
    )
    return spot if role == WORKER and spot != Spot() else None


def seen(job: Job, spots: Mapping[str, Spot | None]) -> Job:
    """Return the job with the places of these nodes."""
    known = {name: spot for name, spot in {**job.topology, **spots}.items() if spot}
    return job if known == job.topology else job.but(topology=known)


def lay_out(
    nodes: Sequence[Node], spots: Mapping[str, Spot], entered: Callable[[Node], int]
) -> tuple[Node, ...]:
    """Return `nodes`, given by age, in the order of ranks; `entered` is the round since which one trains."""
    if not nodes or not any(node.name in spots for node in nodes):
        return tuple(nodes)
    oldest = [node for node in nodes if entered(node) == entered(nodes[0])]
    first = min(oldest, key=lambda node: _group(spots, node))
    blocks: dict[str, int] = {_rack(spots, first): -1}
    for number, node in enumerate(nodes):
        blocks.setdefault(_rack(spots, node), number)
    home = _group(spots, first)

    def key(node: Node) -> tuple[bool, tuple[bool, int], int, bool]:
        group = _group(spots, node)
        return group != home, group, blocks[_rack(spots, node)], node is not first

    return tuple(sorted(nodes, key=key))


def problem(job: Job) -> str:
    """Return why the groups of the workers do not add up, empty if they do or there are none.

    The labels of pods that do not run yet may still come.
    """
    if not any(spot.group is not None for spot in job.topology.values()):
        return ""
    workers = [node for node in job.nodes.values() if node.role == WORKER]
    if job.spec.replicas is None or len(workers) < job.spec.replicas or not all(n.started for n in workers):
        return ""
    spots = {node.name: job.topology.get(node.name, Spot()) for node in workers}
    sizes = Counter(spot.group for spot in spots.values() if spot.group is not None)
    declared = {spot.groups for spot in spots.values() if spot.groups is not None}
    if without := [name for name, spot in spots.items() if spot.group is None]:
        return (
            f"{_sizes(sizes)} add up to {sizes.total()} of {len(workers)} workers: "
            f"{_some(without)} without a number in the label {GROUP}"
        )
    if len(declared) > 1:
        return f"the label {GROUPS} is {' here and '.join(map(str, sorted(declared)))} there"
    if declared and (set(sizes) != set(range(count := declared.pop()))):
        return f"the label {GROUPS} says {count} groups from 0 on, but the workers are in {_sizes(sizes)}"
    return ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _group(spots: Mapping[str, Spot], node: Node) -> tuple[bool, int]:
    """Sort key of a node's group; nodes without one come last."""
    spot = spots.get(node.name)
    return (True, 0) if spot is None or spot.group is None else (False, spot.group)


def _rack(spots: Mapping[str, Spot], node: Node) -> str:
    """Return the rack of a node; one whose rack is unknown is in a rack of its own."""
    spot = spots.get(node.name)
    return f"rack {spot.rack}" if spot and spot.rack else f"node {node.name}"


def _sizes(sizes: Mapping[int, int]) -> str:
    return "groups " + ", ".join(f"{group} ({size})" for group, size in sorted(sizes.items())[:8])


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return f"{few(listed)} {'is' if len(listed) == 1 else 'are'}"
