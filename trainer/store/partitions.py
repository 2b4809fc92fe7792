"""The partitions of each server: contiguous ranges, each with a copy on the next server."""

from __future__ import annotations

from elasticjob.trainer.store.tables import PARTITIONS


def partitions_of(place: int, servers: int) -> range:
    """Return the partitions of the server at `place`."""
    return range(place * PARTITIONS // servers, (place + 1) * PARTITIONS // servers)


def copies_of(place: int, servers: int) -> range:
    """Return the partitions of which the server at `place` has a copy: those of the one before it."""
    return partitions_of((place - 1) % servers, servers) if servers > 1 else range(0)


def owners(servers: int) -> list[int]:
    """Return the place of the owner of each partition."""
    return [place for place in range(servers) for _ in partitions_of(place, servers)]
