"""The snapshot of a job as JSON: nodes and members of the world as columns, so that ten thousand fit.

A column is a list of one value for each row, or `[value]` if all are equal; it is left out if all have the
field's default. Of a crowd, less is saved: see `_to_save`. The form before it, a node for each name, is read
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Node
from elasticjob.master.state.roster import Roster

FORM: Final = 2
CROWD: Final = 1_000
"""Nodes beyond which the snapshot keeps less of each: the API server takes 1 MiB."""
RETIRED: Final = 1  # incarnation of a node of a crowd that is refused by the next master
WORDS: Final = 200  # characters of its failure

_fields = cache(msgspec.structs.fields)

Row = TypeVar("Row", bound=msgspec.Struct)
Columns = dict[str, Sequence[Any]]


class _Snapshot(msgspec.Struct):
    """The snapshot. `own` are the incarnations of members that are not those of their nodes now."""

    form: int
    job: msgspec.Raw
    rows: int
    nodes: Columns
    world: msgspec.Raw = msgspec.Raw(b"null")
    members: Columns = {}
    places: Sequence[int] = ()
    own: dict[int, str] = {}


class _Form(msgspec.Struct):
    form: int = 1


def encode(job: Job, now: datetime | None) -> bytes:
    """Return `job` at `now` as JSON."""
    nodes = tuple(_to_save(node, job) for node in job.nodes.values())
    rest = _json(job.but(nodes=Roster(), world=None, saved=now))
    saved = _Snapshot(form=FORM, job=msgspec.Raw(rest), rows=len(nodes), nodes=_columns(Node, nodes))
    if job.world:
        saved = _with_world(saved, job.world, nodes)
    return msgspec.json.encode(saved)


def decode(data: bytes) -> Job:
    """Return the job of a snapshot. Raises msgspec.DecodeError, LookupError or ValueError."""
    form = msgspec.json.decode(data, type=_Form).form
    if form == 1:
        return _job(data)
    if form != FORM:
        raise msgspec.ValidationError(f"it has form {form}, and this master reads up to {FORM}")
    saved = msgspec.json.decode(data, type=_Snapshot)
    nodes = Roster(_rows(Node, saved.nodes, saved.rows))
    world = msgspec.json.decode(saved.world, type=World | None)
    if world:
        lives = nodes.values()
        own = {
            "node": [lives[place].name for place in saved.places],
            "incarnation": [
                saved.own.get(row, lives[place].incarnation) for row, place in enumerate(saved.places)
            ],
        }
        members = _rows(Member, {**saved.members, **own}, len(saved.places))
        world = msgspec.structs.replace(world, members=tuple(members))
    return _job(saved.job).but(nodes=nodes, world=world)


def _to_save(node: Node, job: Job) -> Node:
    """Return what is kept of a node: that it has an agent, but not when that was heard; no open request."""
    beat = job.nodes.heard if node.beat else None
    kept = node.but(usage=None, peak=None, told=None, joined=None, alike=None, beat=beat)
    if len(job.nodes) <= CROWD:
        return kept
    return kept.but(retired=node.retired[-RETIRED:], failure=node.failure[:WORDS])


def _with_world(saved: _Snapshot, world: World, nodes: Sequence[Node]) -> _Snapshot:
    where = {node.name: place for place, node in enumerate(nodes)}
    places = [where[member.node] for member in world.members]
    own = {
        row: member.incarnation
        for row, (member, place) in enumerate(zip(world.members, places, strict=True))
        if member.incarnation != nodes[place].incarnation
    }
    columns = _columns(Member, world.members)
    del columns["node"]
    columns.pop("incarnation", None)
    whole = msgspec.Raw(_json(msgspec.structs.replace(world, members=())))
    return msgspec.structs.replace(saved, world=whole, members=columns, places=places, own=own)


def _columns(kind: type[Row], rows: Sequence[Row]) -> Columns:
    columns: Columns = {}
    for field in _fields(kind):
        values = [getattr(row, field.name) for row in rows]
        if all(value == values[0] for value in values):
            values = values[:1]
        if values and values != [field.default]:
            columns[field.name] = values
    return columns


def _rows(kind: type[Row], columns: Mapping[str, Sequence[Any]], many: int) -> Iterator[Row]:
    names = list(columns)
    for name, column in columns.items():
        if len(column) not in (1, many):
            raise msgspec.ValidationError(f"column {name} has {len(column)} rows, not {many}")
    whole = [list(column) * many if len(column) == 1 and many > 1 else column for column in columns.values()]
    for row in zip(*whole, strict=True):
        yield msgspec.convert(dict(zip(names, row, strict=True)), kind, strict=True)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=lambda roster: {})


def _job(data: bytes | msgspec.Raw) -> Job:
    return msgspec.json.decode(data, type=Job, dec_hook=_roster)


def _roster(kind: type[Any], found: Any) -> Any:
    """Return a roster from the form that had one node for each name."""
    return Roster(msgspec.convert(found, dict[str, Node]).values())
