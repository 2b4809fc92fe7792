"""A run whose master is outside of a cluster, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticjob.cli.standalone.torchrun import Conf

BESIDE = "ELASTICJOB_BESIDE"
"""For the nodes that a standalone run starts: its pid. They join its master, and end with it."""


@dataclass(frozen=True)
class HostedJob:
    """The job whose master some node of it hosts: its size, and its endpoint (empty: for this node alone)."""

    low: int
    high: int
    host: str = ""
    port: int = 0
    name: str = ""  # the --rdzv-id
    conf: Conf = field(default_factory=Conf)
    exclude_stragglers: bool = False  # nodes that the check finds slow do not train
    beside: bool = False  # the other nodes are processes that this one starts
