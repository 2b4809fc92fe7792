"""Values keep their bytes over any change of servers, without TensorFlow: the rule of places alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.trainer.tensorflow import partitions
from elasticjob.trainer.tensorflow.partitions import Entry, Part, bounds, of_server, parts, pieces, slice_spec

Rows = list[int]
Shelves = list[dict[str, Rows]]
"""For each server what it has: the rows of each part, each a number of its own."""

USERS = Entry("users", "", (2_001, 32), "float32", True, "users")
SLOT = Entry("users", "/Adagrad", (2_001, 32), "float32", True, "users")
WHOLE = Entry("top/kernel", "", (32, 1), "float32", False, "top/kernel")
WHOLES = Entry("top/kernel/Adam", "", (32, 1), "float32", False, "top/kernel")
POWER = Entry("beta1_power", "", (), "float32", False, "users/part_0")

entries = st.builds(
    Entry,
    stem=st.sampled_from(["users", "items/table", "words"]),
    slot=st.sampled_from(["", "/Adam", "/Adam_1"]),
    shape=st.tuples(st.integers(1, 40), st.just(1)),
    dtype=st.just("float32"),
    cut=st.booleans(),
    home=st.sampled_from(["users", "a/b", "users/part_0"]),
)
manifests = st.lists(entries, max_size=6, unique_by=lambda entry: entry.name)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def first(manifest: Sequence[Entry], servers: int) -> Shelves:
    """Return values as a worker makes them."""
    return [
        {part.name: rows_of(number, part) for number, (entry, part) in enumerate_own(manifest, servers, k)}
        for k in range(servers)
    ]


def enumerate_own(manifest: Sequence[Entry], servers: int, k: int) -> list[tuple[int, tuple[Entry, Part]]]:
    return [(manifest.index(entry), (entry, part)) for entry, part in of_server(manifest, servers, k)]


def rows_of(number: int, part: Part) -> Rows:
    return [1_000 * number + row for row in range(part.first, part.first + part.rows)]


def moved(manifest: Sequence[Entry], before: Shelves, servers: int) -> Shelves:
    """Return what servers have that take over from those before."""
    return [
        {
            part.name: [
                row
                for piece in pieces(entry, part, len(before))
                for row in before[piece.part.server][piece.part.name][slice(*(piece.rows or (None,)))]
            ]
            for entry, part in of_server(manifest, servers, k)
        }
        for k in range(servers)
    ]


@given(manifests, sizes)
def test_any_series_of_changes_gives_what_a_worker_would_have_made(
    manifest: list[Entry], series: list[int]
) -> None:
    shelves = first(manifest, series[0])
    for servers in series[1:]:
        shelves = moved(manifest, shelves, servers)
    assert shelves == first(manifest, series[-1])


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_parts_differ_by_one_row_at_most_and_the_larger_ones_come_first(rows: int, servers: int) -> None:
    edges = bounds(rows, servers)
    sizes = [end - start for start, end in pairwise(edges)]
    assert sum(sizes) == rows
    assert len(sizes) == min(rows, servers)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_parts_are_named_as_tensorflow_names_them() -> None:
    assert parts(SLOT, 2) == (
        Part(0, "users/part_0/Adagrad", (1_001, 32), 0),
        Part(1, "users/part_1/Adagrad", (1_000, 32), 1_001),
    )
    assert partitions.split("users/part_1/Adagrad") == ("users", "/Adagrad")
    assert partitions.split("deep/users/part_12") == ("deep/users", "")


@pytest.mark.parametrize("servers", range(1, 8))
def test_slots_are_where_their_variable_is(servers: int) -> None:
    assert [part.server for part in parts(WHOLE, servers)] == [part.server for part in parts(WHOLES, servers)]
    assert parts(POWER, servers)[0].server == parts(USERS, servers)[0].server


def test_a_checkpoint_names_slices_of_the_whole_variable() -> None:
    assert [slice_spec(USERS, part) for part in parts(USERS, 2)] == [
        "2001 32 0,1001:-",
        "2001 32 1001,1000:-",
    ]
    flat = Entry("seen", "", (5,), "int32", True, "seen")
    assert slice_spec(flat, parts(flat, 1)[0]) == "5 0,5"
    assert slice_spec(WHOLE, parts(WHOLE, 3)[0]) == ""


@given(manifests)
def test_a_manifest_is_read_as_it_was_written(manifest: list[Entry]) -> None:
    assert partitions.decode(partitions.encode(manifest)) == tuple(manifest)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'[["users"]]', b'[{"stem": "users", "slot": "", "shape": [-1]}]', b"[1]"]
)
def test_what_is_no_manifest_is_refused_with_a_sentence(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a manifest of variables"):
        partitions.decode(text)


def test_the_rule_needs_no_tensorflow() -> None:
    program = "import sys, elasticjob.trainer.tensorflow.partitions; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run((sys.executable, "-c", program), check=False).returncode == 0
