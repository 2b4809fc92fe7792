"""TensorFlow's sessions over servers that change; test_apart.py runs this in a process of its own.

The master is played by `Cluster`: it moves values at once. Servers are of this process, but for one.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticjob.api.rpc.shards import Dataset, Shard
from elasticjob.trainer.link.address import Way
from elasticjob.trainer.parameters import Following, Gone, Move
from elasticjob.trainer.servers.visits import Visit
from elasticjob.trainer.tensorflow import (
    EstimatorSpec,
    ModeKeys,
    Servers,
    Step,
    export,
    files,
    from_model_fn,
    predict_of,
    serve,
)
from elasticjob.trainer.tensorflow.compat import start_server, tf, v1
from elasticjob.trainer.tensorflow.graph import draw
from elasticjob.trainer.tensorflow.server import Server
from elasticjob.trainer.tensorflow.servers import LOST, merge

WAY = Way(address="127.0.0.1:1", token_file="", node="node")
RECORDS = 2_000
ROWS = 2_001
MORTAL = 50
"""The version whose values are at the mortal server."""


def model() -> Step:
    """An embedding, a layer, Adam, a metric, and a count of each record."""
    user, score = v1.placeholder(tf.int32, [None]), v1.placeholder(tf.float32, [None])
    x = tf.nn.embedding_lookup(v1.get_variable("users", [ROWS, 8]), user)
    y = tf.matmul(x, v1.get_variable("top/kernel", [8, 1]))[:, 0] + v1.get_variable("top/bias", [1])
    loss = tf.reduce_mean((y - score) ** 2)
    step = v1.train.get_or_create_global_step()
    mean, update = v1.metrics.mean(loss)
    train = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    record = v1.placeholder(tf.int32, [None])
    seen = v1.get_variable("seen", [RECORDS], tf.int32, initializer=v1.zeros_initializer(), trainable=False)
    counts = []
    for part in seen:
        first = part._save_slice_info.var_offset[0]
        rows = tf.boolean_mask(record, (record >= first) & (record < first + part.shape[0])) - first
        counts.append(part.scatter_add(tf.IndexedSlices(tf.ones_like(rows), rows)))
    feed = {"user": user, "score": score, "record": record}
    return Step(tf.group(train, update, *counts), feed, loss=loss, mean=mean, step=step.read_value())


class Told(Following):
    """The changes that a worker follows, without a master."""

    def __init__(self) -> None:
        super().__init__(way=WAY)
        self.chief, self.is_new = True, False

    @property
    def is_chief(self) -> bool:
        return self.chief

    @property
    def changing(self) -> bool:
        return self.is_new

    def at_boundary(self, timeout: float | None = None) -> bool:
        self.is_new = False
        return True

    def wait_for_change(self, seconds: float) -> None:
        time.sleep(0.01)


class Reports:
    """The shards of a worker, without a master."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.finished: list[int] = []

    def applied(self, shard: Shard, records: int) -> None:
        self.counted.append(records)

    def done(self, shard: Shard) -> None:
        self.finished.append(shard.number)

    busy = nullcontext

    def holds_beside(self, shard: Shard, attend: Callable[[], bool]) -> bool:
        return attend()


class Cluster:
    """Servers in use, and workers that know them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self.servers: tuple[Server, ...] = ()
        self.workers: list[Servers] = []

    def server(self) -> Server:
        return Server("127.0.0.1:0", self.folder)

    def worker(self, made: Callable[[], Step] = model) -> Servers:
        """Return one that trains with the present servers; its Following and Shards are played here."""
        worker = Servers(made, Dataset(name="records", size=RECORDS, shard=100), way=WAY)
        worker._local, worker._address = start_server("127.0.0.1:0")
        worker._following = worker._visits.following = Told()
        worker._visits.shards = Reports()  # type: ignore[assignment]  # as much of it as a step needs
        self.workers.append(worker)
        self._tell(None)
        return worker

    def change(self, *servers: Server, restores: int | None = None) -> None:
        before, after = [tuple(each.address for each in group) for group in (self.servers, servers)]
        restores = restores if self.version else 0
        since, self.version = self.version, self.version + 1
        for place, server in enumerate(servers):
            server.take_over(Move(self.version, since, before, after, place, restores))
        self.servers = servers
        self._tell(restores)
        for server in servers:
            server.use(self.version, after)

    def save(self, number: int) -> None:
        for server in self.servers:
            server.copy(number)

    def write(self, number: int) -> Any:
        """Return the checkpoint as TensorFlow reads it."""
        for place, server in enumerate(self.servers):
            server.write(number, (), place, len(self.servers))
        files.finish(self.folder, number, merge)
        return tf.train.load_checkpoint(str(self.folder / f"model-{number}"))

    def saved(self, number: int) -> Any:
        """Save at once; return the checkpoint."""
        self.save(number)
        return self.write(number)

    def _tell(self, restores: int | None) -> None:
        for worker in self.workers:
            following = worker._following
            following.version = self.version
            following.addresses = tuple(each.address for each in self.servers)
            if restores is not None:
                following.restored = self.version


def counted(checkpoint: Any) -> int:
    """Return how many records a checkpoint counts, none of them twice."""
    seen = checkpoint.get_tensor("seen")
    assert seen.max() == 1
    return int(seen.sum())


def shard_of(number: int) -> Shard:
    """Return a shard of 100 records."""
    return Shard(number=number, lease=number, epoch=0, start=100 * number, end=100 * number + 100)


def steps_of(worker: Servers, number: int = 0) -> Iterator[Any]:
    """Yield the records, 20 at a time, of a shard that was dealt to a worker just now, and their steps."""
    visit = Visit(worker._visits, shard_of(number), worker._following.restored, time.monotonic())
    return worker._steps_of(visit, 20)


def train(worker: Servers, *shards: int) -> None:
    """Train with shards."""
    for number in shards:
        for records, step in steps_of(worker, number):
            ids = np.asarray(records)
            step(user=ids % 700, score=(ids % 7).astype(np.float32), record=ids)


@pytest.fixture(scope="session", autouse=True)
def mortal() -> Iterator[tuple[int, str]]:
    """A server in a process of its own, forked before this one has threads of TensorFlow."""
    readable, writable = os.pipe()
    if (pid := os.fork()) == 0:
        server = Server("127.0.0.1:0")
        server.take_over(Move(MORTAL, 0, (), (server.address,), 0))
        os.write(writable, server.address.encode() + b"\n")
        while True:
            signal.pause()
    with os.fdopen(readable) as said:
        address = said.readline().strip()
    yield pid, address
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_values_survive_changes_and_a_checkpoint_counts_each_record(cluster: Cluster) -> None:
    a, b, c, d, e = (cluster.server() for _ in range(5))
    cluster.change(a, b, c)
    worker = cluster.worker()
    train(worker, 0, 1)
    cluster.change(a, b, c, d)
    train(worker, 2, 3)
    cluster.change(a, b)
    train(worker, 4)
    cluster.change(e, b)
    train(worker, 5)
    cluster.save(5)
    train(worker, 6, 7)
    kept = cluster.write(5)
    assert kept.get_tensor("seen").sum() == 600, "what came after the stop is not in it"
    assert kept.get_tensor("global_step") == 30
    assert kept.get_variable_to_shape_map()["users/Adam_1"] == [ROWS, 8]
    assert cluster.servers[0].newest() is not None
    moments = kept.get_tensor("users/Adam")
    cluster.change(a, c, d, restores=5)
    again = cluster.saved(7)
    assert (again.get_tensor("users/Adam") == moments).all()
    train(worker, 6, 7)
    last = cluster.saved(9)
    assert (counted(last), last.get_tensor("global_step")) == (800, 40)


def test_a_shard_goes_on_where_it_is_counted_whatever_the_ledger_knows(cluster: Cluster) -> None:
    cluster.change(cluster.server(), cluster.server())
    first = cluster.worker()
    steps = steps_of(first, 3)
    for _ in range(2):
        records, step = next(steps)
        step(user=np.array(records), score=np.zeros(20), record=np.array(records))
    train(cluster.worker(), 3)
    assert counted(cluster.saved(1)) == 100


def test_a_count_that_comes_late_takes_none_back(cluster: Cluster) -> None:
    """A worker was stopped in a step, and goes on when another one has its shard."""
    cluster.change(cluster.server(), cluster.server())
    stopped, other = cluster.worker(), cluster.worker()
    train(other, 3)
    stopped._boundary()
    ids = np.arange(300, 320)
    stopped._make(3, 20, {"user": ids, "score": np.zeros(20), "record": ids})
    assert [other._count(shard_of(number)) for number in (3, 4)] == [100, 0]


def test_workers_of_the_same_servers_do_not_end_each_others_sessions(cluster: Cluster) -> None:
    cluster.change(cluster.server())
    one, other = cluster.worker(), cluster.worker()
    for number in range(0, 6, 2):
        train(one, number)
        train(other, number + 1)
    assert one._visits.shards.finished == [0, 2, 4]  # type: ignore[attr-defined]


def test_a_worker_that_was_cut_off_counts_nothing(cluster: Cluster) -> None:
    a, b = cluster.server(), cluster.server()
    cluster.change(a, b)
    worker = cluster.worker()
    train(worker, 0)
    old = worker._now
    cluster.change(b, a)
    worker._now = old
    with pytest.raises(LOST):
        worker._make(1, 120, {"user": np.arange(20), "score": np.zeros(20), "record": np.arange(100, 120)})
    train(worker, 1)
    assert counted(cluster.saved(3)) == 200


def test_the_next_first_worker_makes_the_values_if_the_first_one_could_not(cluster: Cluster) -> None:
    cluster.change(cluster.server(), cluster.server())
    lost, waits = cluster.worker(), cluster.worker()
    lost._following.at_boundary()
    begun = lost._reach(lost._following.version, lost._following.addresses)
    begun.session.run(begun.drawn.names.begin)  # and is killed before it says so
    waits._following.chief = False  # type: ignore[attr-defined]
    now = waits._reach(waits._following.version, waits._following.addresses)
    assert not waits._begin(now)
    waits._following.chief = True  # type: ignore[attr-defined]
    assert waits._begin(now)
    cluster.change(cluster.server())
    train(waits, 0)
    assert waits._visits.shards.finished == [0]  # type: ignore[attr-defined]


def test_first_values_that_come_late_change_nothing(cluster: Cluster) -> None:
    """The first worker stops in the midst of them, is given up, and goes on when another one has trained."""
    begun, goes_on = threading.Event(), threading.Event()

    def zero() -> Any:
        if not begun.is_set():
            begun.set()
            goes_on.wait(60)
        return np.zeros([2], np.float32)

    def slow() -> Step:
        def first(shape: Any, **_: Any) -> Any:
            return tf.ensure_shape(v1.py_func(zero, [], tf.float32), shape)

        total = v1.get_variable("total", [2], initializer=first)
        with tf.control_dependencies([total.assign_add([1.0, 1.0], read_value=False)]):
            after = total.read_value()
        return Step(after, {}, total=after)

    cluster.change(cluster.server(), cluster.server())
    stopped, other = cluster.worker(slow), cluster.worker(slow)
    now = stopped._reach(1, stopped._following.addresses)
    late = threading.Thread(target=now.session.run, args=(now.drawn.names.begin,))
    late.start()
    assert begun.wait(60)
    other._boundary()
    assert other._make(0, 1, {})["total"].tolist() == [1.0, 1.0]
    goes_on.set()
    late.join()
    assert other._make(0, 2, {})["total"].tolist() == [2.0, 2.0]


def test_values_that_come_twice_in_a_move_change_nothing(cluster: Cluster) -> None:
    """A server was out of reach for a while, and the attempt that was left behind then goes on late."""
    a, b = cluster.server(), cluster.server()
    cluster.change(a, b)
    worker = cluster.worker()
    train(worker, 0)
    cluster.saved(2)
    cluster.change(b, a, restores=2)
    train(worker, 1)
    again = (b.address, a.address)
    b.take_over(Move(cluster.version, 1, (a.address, b.address), again, 0, restores=2))
    assert counted(cluster.saved(3)) == 200


def test_a_server_that_was_lost_ends_the_step_and_its_values_are_gone(
    cluster: Cluster, mortal: tuple[int, str]
) -> None:
    pid, address = mortal
    cluster.change(cluster.server())
    worker = cluster.worker()
    train(worker, 0)
    worker._following.addresses = (address,)
    worker._following.version = 2
    now = worker._reach(2, (address,))
    with pytest.raises(LOST):  # it has no values of any version
        now.session.run(now.drawn.names.told)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Gone):
        cluster.servers[0].take_over(Move(9, 7, (cluster.servers[0].address,), ("x:1",), 0))
    os.kill(pid, signal.SIGCONT)
    assert worker._are_well(worker._made[1])


def test_a_step_at_a_machine_that_vanished_ends_when_the_values_go_back(
    cluster: Cluster, mortal: tuple[int, str]
) -> None:
    pid, address = mortal
    worker = cluster.worker()
    worker._following.version, worker._following.addresses = MORTAL, (address,)
    train(worker, 0)
    ids = np.arange(20)
    _, step = next(steps_of(worker, 1))
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, worker._renew).start()
    with pytest.raises(tf.errors.CancelledError):
        worker._make(1, 20, {"user": ids, "score": np.zeros(20), "record": ids})
    assert worker._now
    assert not worker._are_well(worker._now), "it does not answer"
    os.kill(pid, signal.SIGCONT)
    assert step(user=ids, score=np.zeros(20), record=ids)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model-2.data-00000-of-00001", truncated),
        ("model-2.index", lambda path: path.write_bytes(bytes(path.stat().st_size))),
        ("model-2.json", truncated),
    ],
)
def test_an_older_checkpoint_is_found_if_the_newest_is_damaged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, file: str, damage: Callable[[Path], object]
) -> None:
    cluster.change(cluster.server())
    train(cluster.worker(), 0)
    for number in (1, 2):
        cluster.saved(number)
        found = cluster.servers[0].newest()
        assert found
        assert found.number == number
    damage(cluster.folder / file)
    found = cluster.servers[0].newest()
    assert found
    assert found.number == 1
    assert "checkpoint 2 is damaged, an older one is looked for" in caplog.text


def test_values_with_wrong_bytes_are_set_aside_for_the_older_checkpoint(cluster: Cluster) -> None:
    cluster.change(cluster.server())
    train(cluster.worker(), 0)
    for number in (1, 2):
        cluster.saved(number)
    data = next(cluster.folder.glob("model-2.data-*"))
    data.write_bytes(bytes(each ^ 1 for each in data.read_bytes()))
    with pytest.raises(Gone, match=r"checkpoint 2 of .* is damaged"):
        cluster.server().take_over(Move(2, 1, (), ("",), 0, 2))
    found = cluster.server().newest()
    assert found
    assert found.number == 1


def doing(do: Callable[[], float], first: Callable[[], float] = lambda: 0.0) -> Callable[[], Step]:
    """Return a model whose step, and first value, call Python; it counts its steps."""

    def made() -> Step:
        def make(shape: Any, **_: Any) -> Any:
            return tf.ensure_shape(tf.numpy_function(first, [], tf.float64), shape)

        begun = v1.get_variable("first", [], tf.float64, initializer=make)
        total = v1.get_variable("total", [], tf.float64, initializer=v1.zeros_initializer())
        did = tf.numpy_function(do, [], tf.float64)
        with tf.control_dependencies([did]):
            train = total.assign_add(1.0, read_value=False)
        return Step(train, {}, total=total.read_value(), begun=begun.read_value())

    return made


def fetched(worker: Servers) -> list[Any]:
    """Return what the steps of a shard fetched."""
    return [step() for _, step in steps_of(worker)]


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (RuntimeError("mine"), False),
        (tf.errors.AbortedError(None, None, "mine"), False),
        (RuntimeError("mine"), True),
    ],
    ids=["step", "step of TensorFlow", "first values"],
)
def test_a_step_that_fails_by_itself_ends_with_its_error(
    cluster: Cluster, error: Exception, first: bool
) -> None:
    tried = []

    def fail() -> float:
        tried.append(1)
        raise error

    cluster.change(cluster.server(), cluster.server())
    with pytest.raises(tf.errors.OpError, match="mine"):
        fetched(cluster.worker(doing(lambda: 0.0, fail) if first else doing(fail)))
    assert len(tried) <= 2
    assert cluster.workers[0]._visits.shards.finished == []  # type: ignore[attr-defined]


def test_a_step_may_fail_now_and_then(cluster: Cluster) -> None:
    tried = []

    def fail() -> float:
        tried.append(1)
        if len(tried) % 2:
            raise RuntimeError("mine")
        return 0.0

    cluster.change(cluster.server(), cluster.server())
    assert len([each for each in fetched(cluster.worker(doing(fail))) if each]) == 5


def test_a_step_counts_once_however_long_it_takes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes all threads of its process, so that nothing can be asked beside it."""
    monkeypatch.setattr("elasticjob.trainer.tensorflow.servers.PATIENCE", 0.2)
    tried: list[int] = []

    def slow() -> float:
        tried.append(1)
        if len(tried) == 2:
            threading.Event().wait(1.0)
        return 0.0

    cluster.change(cluster.server(), cluster.server())
    made = fetched(cluster.worker(doing(slow)))
    assert [bool(each) for each in made] == [True] * 5
    assert len(tried) == 5


def test_a_session_that_is_broken_is_not_used_for_ever(cluster: Cluster) -> None:
    cluster.change(cluster.server(), cluster.server())
    worker = cluster.worker()
    train(worker, 0)
    assert worker._now
    worker._now.session = Broken(worker._now.session)
    train(worker, 1)
    assert counted(cluster.saved(2)) == 200


class Broken:
    """A session after its connections were reset."""

    def __init__(self, session: Any) -> None:
        self.graph = session.graph
        self.close = session.close

    def run(self, *_: Any) -> Any:
        raise tf.errors.AbortedError(None, None, "Session handle is not found")


def test_a_server_that_was_lost_before_a_move_does_not_hold_it_up(cluster: Cluster) -> None:
    cluster.change(cluster.server())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        lost = f"127.0.0.1:{closed.getsockname()[1]}"
    own = cluster.servers[0].address
    with pytest.raises(ConnectionError, match="cannot be reached"):
        cluster.servers[0].take_over(Move(2, 1, (lost, own), (own,), 0))


def test_a_model_that_differs_from_that_of_the_servers_is_refused(cluster: Cluster) -> None:
    cluster.change(cluster.server(), cluster.server())
    train(cluster.worker(), 0)

    def other() -> Step:
        x = v1.get_variable("users", [ROWS, 16])
        x = tf.reduce_sum(tf.convert_to_tensor(x))
        return Step(v1.train.GradientDescentOptimizer(0.1).minimize(x), {})

    with pytest.raises(ValueError, match="all workers run the same model"):
        cluster.worker(other)._boundary()


def lookup_by_mod() -> Step:
    user = v1.placeholder(tf.int32, [None])
    x = v1.nn.embedding_lookup(v1.get_variable("users", [ROWS, 8]), user)
    return Step(v1.train.AdamOptimizer().minimize(tf.reduce_sum(x)), {"user": user})


def own_partitioner() -> Step:
    x = tf.convert_to_tensor(v1.get_variable("a", [10, 4], partitioner=v1.fixed_size_partitioner(3)))
    return Step(v1.train.AdamOptimizer().minimize(tf.reduce_sum(x)), {})


def layered() -> Step:
    """Layers without names, with values that Keras assigns in each step."""
    keras = tf.keras
    x = v1.placeholder(tf.float32, [None, 2])
    y = keras.layers.Dense(1)(keras.layers.BatchNormalization()(x, training=True))
    kept = keras.layers.Dropout(0.5)(tf.ones([64]), training=True)
    train = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean((y - 1.0) ** 2))
    return Step(train, {"x": x}, kept=kept)


def test_layers_of_keras_keep_their_names_and_learn_what_keras_assigns(cluster: Cluster) -> None:
    """As model.fit would: the averages are those of the batches, and each step drops other units."""
    dice = np.random.default_rng(1)
    mean, variance, kept = np.zeros(2), np.ones(2), []
    worker = cluster.worker(layered)
    for number, servers in enumerate((1, 2, 1)):
        cluster.change(*(cluster.server() for _ in range(servers)))
        for _, step in steps_of(worker, number):
            x = dice.normal(3.0, 2.0, (20, 2)).astype(np.float32)
            kept.append(step(x=x)["kept"].tobytes())
            mean, variance = 0.99 * mean + 0.01 * x.mean(0), 0.99 * variance + 0.01 * x.var(0)
    found = cluster.saved(4)
    assert found.get_tensor("batch_normalization/moving_mean") == pytest.approx(mean, rel=1e-5)
    assert found.get_tensor("batch_normalization/moving_variance") == pytest.approx(variance, rel=1e-5)
    assert len(set(kept)) == 15


def test_a_model_that_is_another_one_when_it_is_made_again_is_refused_at_once(cluster: Cluster) -> None:
    calls: list[int] = []

    def other() -> Step:
        calls.append(1)
        x = v1.get_variable(f"x{len(calls)}", [])
        return Step(v1.train.GradientDescentOptimizer(0.1).minimize(x * x), {})

    cluster.change(cluster.server())
    with pytest.raises(ValueError, match="model has x1 alone, and x2 are when the model function is called"):
        cluster.worker(other)._boundary()


def trains_nothing(train: Callable[[Any], Any]) -> Callable[[], Step]:
    return lambda: Step(train(v1.get_variable("x", []) * 2.0), {})


class Layers:
    """As much of a Keras model as is looked at."""

    def fit(self) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lookup_by_mod, "partition_strategy"),
        (own_partitioner, "partitioners"),
        (Layers, "model.fit makes its own loop"),
        (lambda: None, "it returns Step"),
        (trains_nothing(lambda loss: []), "updates no variable"),
        (trains_nothing(lambda loss: None), "updates no variable"),
        (trains_nothing(lambda loss: loss), "updates no variable"),
        (trains_nothing(lambda loss: tf.group(loss)), "updates no variable"),
    ],
)
def test_a_model_that_cannot_follow_servers_is_refused(wrong: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        draw(wrong, 2, "worker0")


def test_a_server_that_is_asked_for_help_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.main(["--help"])
    assert (ended.value.code, "[folder]" in capsys.readouterr().out) == (0, True)


def test_a_keras_model_is_no_model_function() -> None:
    with pytest.raises(TypeError, match=r"model\.fit"):
        Servers(Layers(), Dataset(name="records", size=1), way=WAY)  # type: ignore[arg-type]


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    x = tf.nn.embedding_lookup(v1.get_variable("users", [ROWS, params["dim"]]), features["user"])
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode=mode, predictions={"score": tf.reduce_sum(x, 1)})
    loss = tf.reduce_mean((tf.reduce_sum(x, 1) - labels) ** 2)
    train_op = v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    hooks = [object()] if params.get("hooks") else []
    return EstimatorSpec(mode=mode, loss=loss, train_op=train_op, training_hooks=hooks)


COLUMNS: dict[str, Any] = {"features": {"user": (tf.int32, [None])}, "labels": (tf.float32, [None])}


def test_the_model_function_of_an_estimator_trains(cluster: Cluster) -> None:
    cluster.change(cluster.server(), cluster.server())
    worker = cluster.worker(from_model_fn(model_fn, {"dim": 4}, **COLUMNS))
    losses = []
    for records, step in steps_of(worker):
        made = step(user=np.asarray(records) % 5, labels=np.ones(len(records), np.float32))
        losses.append(made["loss"])
    assert losses[-1] < losses[0]
    with pytest.raises(TypeError, match="hooks"):
        draw(from_model_fn(model_fn, {"dim": 4, "hooks": True}, **COLUMNS), 2, "worker0")


def test_what_was_trained_is_exported(cluster: Cluster, tmp_path: Path) -> None:
    predict = predict_of(model_fn, {"dim": 4}, features=COLUMNS["features"])
    with pytest.raises(FileNotFoundError, match="no complete checkpoint"):
        export(predict, tmp_path, tmp_path / "out")
    cluster.change(cluster.server(), cluster.server())
    worker = cluster.worker(from_model_fn(model_fn, {"dim": 4}, **COLUMNS))
    worker._folder = tmp_path
    for records, step in steps_of(worker):
        step(user=np.asarray(records), labels=np.ones(len(records), np.float32))
    cluster.save(1)
    for place, server in enumerate(cluster.servers):
        server.write(1, (), place, 2)
    worker._finish(1)
    out = export(predict, tmp_path, tmp_path / "out")
    table = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(tmp_path))).get_tensor("users")
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(out)).signature_def["serving_default"]
        feed = {signature.inputs["user"].name: [3, 1_999]}
        scores = session.run(signature.outputs["score"].name, feed)
    assert scores == pytest.approx(table[[3, 1_999]].sum(1))
    with pytest.raises(FileExistsError, match="new folder"):
        export(predict, tmp_path, out)
    with pytest.raises(ValueError, match="as the model does that was trained"):
        export(predict_of(model_fn, {"dim": 8}, features=COLUMNS["features"]), tmp_path, tmp_path / "other")


def test_a_step_is_called_once_with_the_values_of_the_model(cluster: Cluster) -> None:
    cluster.change(cluster.server())
    worker = cluster.worker()
    _, step = next(steps_of(worker))
    with pytest.raises(TypeError, match="the step has users, and the model takes record, score, user"):
        step(users=[1])
    with pytest.raises(RuntimeError, match="twice"):
        step(user=[1])
    steps = steps_of(worker)
    next(steps)
    with pytest.raises(RuntimeError, match="not called"):
        next(steps)
