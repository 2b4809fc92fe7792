"""The parts of the JAX library: what it needs of JAX's private parts, states on their way, relays, files."""

from __future__ import annotations

import socket
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elasticjob.trainer.jax import coordination, older
from elasticjob.trainer.jax.arrays import on_device, pack, unpack
from elasticjob.trainer.jax.elastic import Elastic
from elasticjob.trainer.jax.peers import apart, concatenate
from elasticjob.trainer.jax.relay import Relay
from elasticjob.trainer.jax.state import State
from elasticjob.trainer.jax.step import mean_of, times
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.sampler import Window
from elasticjob.trainer.shards import Dataset
from lab import archives


def test_jax_has_the_private_parts_that_new_worlds_need() -> None:
    assert coordination.missing() == ""
    assert jax.distributed.is_initialized() is False
    assert coordination.private().state.client is None


@pytest.mark.parametrize(
    ("name", "there", "sentence"),
    [
        ("get_distributed_runtime_service", None, "has no get_distributed_runtime_service(recoverable=…)"),
        (
            "get_distributed_runtime_client",
            print,
            "has no get_distributed_runtime_client(heartbeat_timeout=…)",
        ),
        ("state", SimpleNamespace(), "has no distributed.global_state.client"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, there: object, sentence: str
) -> None:
    private = coordination.private()
    setattr(private, name, there)
    monkeypatch.setattr(coordination, "private", lambda: private)
    assert sentence in coordination.missing()


def example() -> dict[str, Any]:
    """A state with leaves of all kinds."""
    return {
        "weights": [jnp.arange(6.0).reshape(2, 3), jnp.ones((), jnp.bfloat16)],
        "minus": np.array([-0.0, np.nan], np.float32),
        "key": jax.random.key(3),
        "steps": 7,
        "rate": 0.1,
        "loose": jnp.asarray(2.5),
        "on": True,
        "none": None,
    }


def test_a_state_arrives_as_it_was() -> None:
    given = State(example(), whole=True, done=Done(3, 48, 1, 16, 0.5))
    other = State({**example(), "steps": 0, "rate": 9.0})
    other.restore(unpack(pack(given.snapshot())), "memory")
    assert other.done == given.done
    before, after = given.snapshot().leaves, other.snapshot().leaves
    assert list(before) == list(after)
    for name, leaf in before.items():
        assert (leaf.kind, leaf.bits.dtype) == (after[name].kind, after[name].bits.dtype)
        assert leaf.bits.tobytes() == after[name].bits.tobytes()
    tree = on_device(other.tree)
    assert (tree["steps"], tree["on"], tree["none"]) == (7, True, None)
    assert type(tree["steps"]) is int
    assert tree["loose"].weak_type
    assert jax.random.key_impl(tree["key"]) == jax.random.key_impl(jax.random.key(3))


PAIRS: list[tuple[str, str, str]] = [
    ("7", "jnp.int32(7)", ""),
    ("jnp.int32(7)", "7", ""),
    ("np.int64(7)", "7", ""),
    ("np.int64(7)", "jnp.int32(7)", ""),
    ("7.0", "jnp.bfloat16(7)", ""),
    ("True", "jnp.bool_(True)", ""),
    ("np.zeros(3)", "jnp.zeros(3)", ""),
    ("jnp.float32(7)", "jnp.asarray(7.0)", ""),
    ("7", "7.0", "state/x is a int there and a float here"),
    ("True", "1", "state/x is a bool there and a int here"),
    (
        "jnp.zeros(3, jnp.bfloat16)",
        "jnp.zeros(3, jnp.float16)",
        "state/x is bfloat16 3 there and float16 3 here",
    ),
    ("jnp.zeros(3)", "jnp.zeros(3, jnp.int32)", "state/x is float32 3 there and int32 3 here"),
    ("jnp.zeros((2, 3))", "jnp.zeros((3, 2))", "state/x is float32 2×3 there and float32 3×2 here"),
    (
        "{'a': jnp.zeros(2)}",
        "{'b': jnp.zeros(2)}",
        "it has state/x/a, which the state lacks, it lacks state/x/b",
    ),
    ("[1, 2]", "[1]", "it has state/x/1, which the state lacks"),
    ("jax.random.key(1)", "jax.random.key(1, impl='rbg')", "a key threefry2x32 there and a key rbg here"),
    (
        "jax.random.key(1)",
        "jax.random.key_data(jax.random.key(1))",
        "a key threefry2x32 there and uint32 2 here",
    ),
    ("jnp.float32(1)", "jnp.zeros(1)", "state/x is float32 scalar there and float32 1 here"),
]


@pytest.mark.parametrize(("there", "here", "sentence"), PAIRS)
def test_the_same_leaf_is_taken_and_another_is_named(there: str, here: str, sentence: str) -> None:
    names = {"jax": jax, "jnp": jnp, "np": np}
    kept = State({"x": eval(there, names)}, whole=True)  # a table of expressions
    mine = State({"x": eval(here, names)})
    drifted = State({"x": eval(here, names)})
    drifted.tree = {"x": eval(there, names)}
    if not sentence:
        drifted.check(3)
        mine.restore(kept.snapshot(), "run")
        again = State(on_device(mine.tree), whole=True)
        kept.restore(again.snapshot(), "run")  # and back: nobody's first step changes that
        return
    with pytest.raises(ValueError, match="does not fit this script's") as refused:
        mine.restore(kept.snapshot(), "run")
    assert sentence in str(refused.value)
    assert "the checkpoint of step 0 in run" in str(refused.value)
    with pytest.raises(RuntimeError, match="the state after step 3 does not fit") as refused_there:
        drifted.check(3)
    assert sentence in str(refused_there.value)


def trained(folder: Path, change: Callable[[int, Any], Any]) -> Any:
    """Train four steps; `change` gives what the script makes of its state in a step. Return the Elastic."""
    start = {"weights": jnp.zeros(3, jnp.bfloat16), "steps": 0}
    elastic = Elastic(start, Dataset(name="d", size=16), batch=4, checkpoint=folder)
    for step in elastic.steps():
        with step:
            for _ in step:
                step.add(1.0)
            step.mean()
            state = elastic.state
            elastic.state = {"weights": state["weights"] + 1, "steps": state["steps"] + 1}
            elastic.state = change(step.number, elastic.state)
    return elastic


def fails(_: Any) -> Any:
    raise KeyError("the script's own")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            lambda state: {**state, "weights": state["weights"].astype("float32")},
            "is float32 3 there and bflo",
        ),
        (
            lambda state: {**state, "f": fails},
            "state['f'] is a function: a state has arrays and numbers alone",
        ),
        (lambda state: state["weights"], "it lacks state/steps"),
        (fails, "the script's own"),
    ],
)
def test_what_no_later_start_takes_is_refused_and_the_step_before_is_kept(
    tmp_path: Path, changed: Callable[[Any], Any], sentence: str
) -> None:
    with pytest.raises((RuntimeError, TypeError, KeyError)) as refused:
        trained(tmp_path, lambda step, state: changed(state) if step == 3 else state)
    assert sentence in str(refused.value)
    del refused  # and its traceback with the loop, which is left then
    begun: dict[int, Any] = {}
    again = trained(tmp_path, begun.setdefault)
    assert ([*begun], again.state["steps"], again.state["weights"].tolist()) == ([3, 4], 4, [4, 4, 4])


def test_a_checkpoint_of_before_is_read_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arrays = (jnp.arange(3.0), np.int32(7), np.array([9, 90, 1, 10], np.int64), np.array([0.5]))
    for step in (8, 9):
        np.savez(
            tmp_path / f"step-{step}",
            *(np.frombuffer(np.asarray(each).tobytes(), np.uint8) for each in arrays),
        )
    mine = State({"a": jnp.zeros(3), "steps": 0})
    kept = older.newest(tmp_path, dict(mine.snapshot().leaves))
    assert kept
    mine.restore(kept, str(tmp_path))
    assert (mine.done.step, mine.done.offset) == (9, 10)
    tree = on_device(mine.tree)
    assert (tree["a"].tolist(), tree["steps"]) == ([0, 1, 2], 7)
    assert "recorded neither names nor types" in caplog.text
    other = State({"a": jnp.zeros(4), "steps": 0})
    with pytest.raises(ValueError, match="has 12 bytes of state/a, which is float32 4 here: train the same"):
        older.newest(tmp_path, dict(other.snapshot().leaves))


def test_a_checkpoint_of_four_steps_by_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[1] / "checkpoint" / "samples.tar.xz") as archive:
        archives.unpack(archive, tmp_path)
    start = {"w": jnp.zeros(4), "n": 0, "key": jax.random.key(0), "half": jnp.ones(3, jnp.bfloat16)}
    elastic = Elastic(start, Dataset(name="numbers", size=8, epochs=3), batch=4, checkpoint=tmp_path / "jax")
    assert next(elastic.steps()).number == 5
    assert elastic.state["w"].tolist() == pytest.approx(np.linspace(-1, 1, 4) + 16, abs=1e-6)
    assert (elastic.state["n"], elastic.state["half"].tolist()) == (4, [16, 16, 16])


@pytest.mark.parametrize(
    ("kind", "mean"), [("float16", 150.0), ("bfloat16", 1.0078125), ("float32", 1e-3), ("int32", 3)]
)
def test_sums_of_half_precision_are_in_whole_precision(kind: str, mean: float) -> None:
    given = jnp.full(2, mean, kind)
    total = sum(times(given, 512) for _ in range(4))
    result = mean_of(total, 2048, given.dtype)
    assert result.dtype == (given.dtype if kind != "int32" else jnp.float32)
    assert result.tolist() == given.tolist()


@pytest.mark.parametrize(
    "given", [3_000_000_000, np.int64(-3_000_000_000), np.full(2, 2**32 + 2**10, np.uint64), True, 0.5, 2j]
)
def test_numbers_of_64_bits_are_summed_as_what_they_are(given: Any) -> None:
    total = times(given, 1) + times(given, 3)
    result = mean_of(total, 4, jnp.result_type(given))
    assert result.tolist() == np.asarray(given).tolist()
    assert result.dtype == ("complex64" if isinstance(given, complex) else "float32")


def test_a_state_of_something_else_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"state\['model'\]\[0\] is a str: a state has arrays and"):
        State({"model": ["resnet"]})
    with pytest.raises(TypeError, match=r"state\['n'\] is int64 with 5000000000, and JAX makes int32 of it"):
        State({"n": np.int64(5_000_000_000)})
    with pytest.raises(TypeError, match="a state has numbers of 64 bits at most"):
        State({"n": 2**70})


@pytest.mark.parametrize(
    ("dataset", "given", "sentence"),
    [
        ({"size": 0}, {}, "dataset d has no size"),
        ({"size": -1}, {}, "Expected `int` >= 0 - at `$.size`"),
        ({"seed": -1}, {}, "`$.seed`"),
        ({"splitter": "foo"}, {}, 'dataset d: splitter is \'foo\': give "table" or "text"'),
        ({}, {"batch": "4"}, "batch is '4': give a whole number of records, at least 1"),
        ({}, {"batch": 2.5}, "batch is 2.5"),
        ({}, {"batch": True}, "batch is True"),
        ({}, {"batch": 0}, "batch is 0"),
        ({}, {"save_every": "3"}, "save_every is '3': give a whole number of steps"),
        ({}, {"memory_every": 0}, "memory_every is 0"),
        ({}, {"on_change": 3}, "on_change is 3: give a function"),
        ({}, {"checkpoint": __file__}, "is no folder: give a folder that all workers reach"),
        ({}, {"data": 16}, "the data is a int: give a Dataset"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    dataset: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    data = Dataset(**{"name": "d", "size": 8, **dataset})
    with pytest.raises((ValueError, TypeError)) as refused:
        Elastic({}, **{"data": data, "batch": 4, **given})
    assert sentence in str(refused.value)


def test_numbers_of_numpy_are_numbers_of_records(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"size": np.int64(8), "seed": np.int64(1)}
    steps: dict[str, Any] = {"batch": np.int64(4), "save_every": np.int64(1)}
    elastic = Elastic({}, Dataset(name="d", shuffle=True, **numbers), **steps, checkpoint=tmp_path)
    for step in elastic.steps():
        with step:
            for _ in step:
                step.add(1.0)
            step.mean()
    assert (elastic.progress.step, (tmp_path / "step-000000002").is_dir()) == (2, True)


def test_records_of_another_worker_do_not_count() -> None:
    elastic = Elastic({}, Dataset(name="d", size=8), batch=4)
    step = next(steps := elastic.steps())
    told: list[tuple[int, int]] = []
    with suppress(KeyError), step:
        step._pieces = (*step._pieces, *Window(0, range(1), slots=3, count=1).of(rank=2, size=3))
        for records in step:
            told.append((len(records), step.counted))
            step.add(1.0)
        fails(steps)
    assert told == [(4, 4), (1, 0)]


def test_a_relay_waits_for_a_target_that_speaks_and_never_says_that_it_is_gone() -> None:
    target = socket.create_server(("127.0.0.1", 0))
    relay = Relay(target.getsockname())
    near = socket.create_connection(("127.0.0.1", relay.port))
    mute, _ = target.accept()
    mute.close()  # another's, which never speaks: the relay tries again
    far, _ = target.accept()
    far.sendall(b"settings")
    assert near.recv(100) == b"settings"
    near.sendall(b"hello")
    assert far.recv(100) == b"hello"
    far.close()
    near.settimeout(0.2)
    with pytest.raises(TimeoutError):
        near.recv(100)
    assert relay.is_cut
    near.close()
    relay.close()
    target.close()


def test_a_tree_stands_in_one_array_of_each_type() -> None:
    numpy_leaf = np.arange(6, dtype=np.int32).reshape(2, 3)
    tree = {
        "weight": jnp.ones((2, 2)),
        "flags": numpy_leaf,
        "half": jnp.zeros(3, jnp.bfloat16),
        "loss": jnp.float32(5.0),
        "none": jnp.zeros((0, 4)),
    }
    leaves = [jnp.asarray(leaf) for leaf in tree.values()]
    arrays = concatenate(leaves)
    assert sorted(str(each.dtype) for each in arrays) == ["bfloat16", "float32", "int32"]
    assert all(each.ndim == 1 for each in arrays)
    divided = apart(arrays, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    again = dict(zip(tree, divided, strict=True))
    assert again.keys() == tree.keys()
    for name, leaf in tree.items():
        assert again[name].dtype == leaf.dtype
        assert again[name].shape == leaf.shape
        assert np.array_equal(np.asarray(again[name], np.float32), np.asarray(leaf, np.float32))
