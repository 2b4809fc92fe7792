"""The parts of the JAX library: what it needs of JAX's private parts, states on their way, relays, files."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elasticjob.trainer.shards import Dataset

pytestmark = pytest.mark.story


def parts() -> Any:
    """Import the library where a test runs: only the extra `jax` has JAX."""
    import jax

    from elasticjob.trainer.jax import coordination, elastic, peers, relay, saving, state

    return SimpleNamespace(
        jax=jax,
        coordination=coordination,
        elastic=elastic,
        peers=peers,
        relay=relay,
        saving=saving,
        state=state,
    )


def test_jax_has_the_private_parts_that_new_worlds_need() -> None:
    found = parts()
    assert found.coordination.missing() == ""
    assert found.jax.distributed.is_initialized() is False
    assert found.coordination.private().state.client is None


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
    found = parts()
    private = found.coordination.private()
    setattr(private, name, there)
    monkeypatch.setattr(found.coordination, "private", lambda: private)
    assert sentence in found.coordination.missing()


def example(jax: Any) -> dict[str, Any]:
    """A state with leaves of all kinds."""
    return {
        "weights": [jax.numpy.arange(6.0).reshape(2, 3), jax.numpy.ones((), jax.numpy.bfloat16)],
        "minus": np.array([-0.0, np.nan], np.float32),
        "key": jax.random.key(3),
        "steps": 7,
        "rate": 0.1,
        "on": True,
        "none": None,
    }


def bits(parts: Any, state: Any) -> list[bytes]:
    host = parts.state.on_host(state)
    leaves = parts.jax.tree.leaves(host, is_leaf=parts.state.is_key)
    return [parts.state.bits_of(each).tobytes() for each in leaves]


def test_a_state_arrives_bit_by_bit(tmp_path: Path) -> None:
    found = parts()
    given, done = found.state.on_host(example(found.jax)), found.state.Done(3, 48, 1, 16, 0.5)
    other = found.jax.tree.map(
        lambda each: each, found.state.on_host({**example(found.jax), "steps": 0, "rate": 9.0})
    )
    arrived, its = found.state.unpacked(found.state.packed(given, done), other)
    assert its == done
    assert bits(found, found.state.on_device(arrived)) == bits(found, given)
    assert type(arrived["steps"]) is int
    assert arrived["on"] is True
    kept = found.saving.Checkpoints(tmp_path / "kept")
    assert kept.newest(other) is None
    for step in (1, 2, 3):
        kept.save(given, found.state.Done(step))
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["step-2.npz", "step-3.npz"]
    restored, at = kept.newest(other)
    assert bits(found, found.state.on_device(restored)) == bits(found, given)
    assert at.step == 3
    with pytest.raises(ValueError, match="train the same model, or give another checkpoint folder"):
        kept.newest({"weights": np.zeros(3)})


def test_a_state_of_something_else_is_refused_by_name() -> None:
    found = parts()
    with pytest.raises(TypeError, match=r"state\['model'\]\[0\] is a str: a state has arrays and"):
        found.state.on_host({"model": ["resnet"]})
    with pytest.raises(ValueError, match="dataset text has no size"):
        found.elastic.Elastic({}, Dataset(name="text"), batch=1)


def test_a_relay_waits_for_a_target_that_speaks_and_never_says_that_it_is_gone() -> None:
    found = parts()
    target = socket.create_server(("127.0.0.1", 0))
    relay = found.relay.Relay(target.getsockname())
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
    found = parts()
    numpy_leaf = np.arange(6, dtype=np.int32).reshape(2, 3)
    tree = {
        "weight": found.jax.numpy.ones((2, 2)),
        "flags": numpy_leaf,
        "half": found.jax.numpy.zeros(3, found.jax.numpy.bfloat16),
        "loss": found.jax.numpy.float32(5.0),
        "none": found.jax.numpy.zeros((0, 4)),
    }
    leaves = [found.jax.numpy.asarray(leaf) for leaf in tree.values()]
    arrays = found.peers.joined(leaves)
    assert sorted(str(each.dtype) for each in arrays) == ["bfloat16", "float32", "int32"]
    assert all(each.ndim == 1 for each in arrays)
    divided = found.peers.apart(arrays, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    again = dict(zip(tree, divided, strict=True))
    assert again.keys() == tree.keys()
    for name, leaf in tree.items():
        assert again[name].dtype == leaf.dtype
        assert again[name].shape == leaf.shape
        assert np.array_equal(np.asarray(again[name], np.float32), np.asarray(leaf, np.float32))
