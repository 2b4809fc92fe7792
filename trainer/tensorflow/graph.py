"""The graph of the user's model for a number of servers: made once, imported anew for each version of them.

Variables are on servers, all else on the worker. Large variables are cut into rows. What a graph names is
`/job:ps/task:k` and the container of a version, never an address. Beside the model there is `counted`: for
each shard, how many of its records are in the values. It is written after the updates of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elasticjob.trainer.tensorflow.compat import container, task, tf, v1
from elasticjob.trainer.tensorflow.partitions import PART, Entry, parts, server_of, split
from elasticjob.trainer.tensorflow.server import MANIFEST, assign_if

COUNTED: Final = "elasticjob/counted"
RING: Final = 1 << 14
"""Shards whose count is kept: of two that are so far apart, the later one counts."""
SPAN: Final = 1 << 32
"""A shard and its count are one number, shard * SPAN + count: it only rises, whatever comes late."""
CUT: Final = 1_000
"""Rows from which a variable is cut over the servers."""
SERVERS: Final = "ps"

FIT: Final = (
    "a Keras model is no model function: model.fit makes its own loop, which cannot follow other servers. "
    "Pass a function that calls the layers and returns Step(optimizer.minimize(loss), {name: placeholder}); "
    'docs/parameter-servers.md, "Keras", has both ways'
)
MOD: Final = (
    'embedding_lookup of {name} has partition_strategy="mod", the default of compat.v1: with another number '
    'of servers it would find other rows. Use tf.nn.embedding_lookup, or partition_strategy="div"'
)


IDLE: Final = (
    "the train op of Step, {train!r}, updates no variable: give what `optimizer.minimize(loss)` returns"
)
ASSIGNS: Final = {
    "AssignVariableOp": tf.raw_ops.AssignVariableOp,
    "AssignAddVariableOp": tf.raw_ops.AssignAddVariableOp,
    "AssignSubVariableOp": tf.raw_ops.AssignSubVariableOp,
}
READS: Final = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)


class Step:
    """What a model function returns: what trains, the placeholders by name, and what a step should return."""

    def __init__(self, train: Any, feed: Mapping[str, Any], **fetch: Any) -> None:
        self.train, self.feed, self.fetch = train, dict(feed), fetch


Model = Callable[[], Step]


@dataclass(frozen=True)
class Names:
    """The names of tensors and operations: what a step is given, makes and returns, and what is ours."""

    feed: Mapping[str, str]
    fetch: Mapping[str, Any]
    mark: str  # a step: the updates, and then the count of its shard
    shard: str
    at: str
    so_far: str  # the last shard of a row of the ring, and its count
    begin: str
    begin_here: str
    told: str  # the manifest
    probe: str  # whether all servers have it
    here: str  # whether this process has a thread for it
    tell: str
    text: str


@dataclass(frozen=True)
class Blueprint:
    """A model for a number of servers."""

    servers: int
    manifest: tuple[Entry, ...]
    names: Names
    definition: Any
    keeps: Any  # the graph of the model: functions of Python in it live as long as it does

    def graph(self, version: int) -> Any:
        """Return a graph for a version of the cluster."""
        definition = type(self.definition)()
        definition.CopyFrom(self.definition)
        for node in definition.node:
            if _is_served(node):
                node.attr["container"].s = container(version).encode()
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(definition, name="")
        return graph


def draw(model: Model, servers: int, worker: str, cut: int = CUT) -> Blueprint:
    """Make the model for so many servers. `worker` is the name of the job of this process.

    Raises TypeError or ValueError, with what is wrong with the model.
    """
    with ThreadPoolExecutor(1) as fresh:  # Keras counts the names of layers up, in each thread from 0
        return fresh.submit(_draw, model, servers, worker, cut).result()


def with_settings(model: Model) -> Model:
    """Return the model with this thread's type of Keras layers: other threads have the default."""
    if (keras := sys.modules.get("keras")) is None:
        return model
    policy = keras.config.dtype_policy()

    def made() -> Step:
        keras.config.set_dtype_policy(policy)
        return model()

    return made


def _draw(model: Model, servers: int, worker: str, cut: int) -> Blueprint:
    placed = _Placement(servers, worker)
    with tf.Graph().as_default() as graph, v1.device(placed.device):
        with v1.variable_scope("", custom_getter=_cutting(servers, cut)):
            step = check_step(model())
        check_lookups(graph)
        trains = [*tf.nest.flatten(step.train), *_assigned_by_keras(graph)]
        if not _updates(trains, v1.global_variables()):
            raise TypeError(IDLE.format(train=step.train))
        counted = v1.get_variable(
            COUNTED, [RING], tf.int64, initializer=v1.zeros_initializer(), trainable=False
        )
        shard = v1.placeholder(tf.int64, [], "elasticjob/shard")
        at = v1.placeholder(tf.int64, [], "elasticjob/at")
        text = v1.placeholder(tf.string, [], "elasticjob/text")
        with tf.control_dependencies(trains):
            mark = tf.raw_ops.ResourceScatterMax(
                resource=counted.handle,
                indices=tf.reshape(shard % RING, [1]),
                updates=tf.reshape(shard * SPAN + at, [1]),
            )
        last = tf.gather(counted, shard % RING)
        told, probe, tell = _manifest_ops(servers, text)
        begin_here = tf.group(v1.local_variables_initializer(), v1.tables_initializer())
        manifest = tuple(placed.entries(v1.global_variables()))
        begin = _first_values(v1.global_variables(), probe)
        names = Names(
            feed={name: tensor.name for name, tensor in step.feed.items()},
            fetch={
                name: tf.nest.map_structure(lambda each: each.name, each) for name, each in step.fetch.items()
            },
            mark=mark.name,
            shard=shard.name,
            at=at.name,
            so_far=tf.stack([last // SPAN, last % SPAN], name="elasticjob/so_far").name,
            begin=begin.name,
            begin_here=begin_here.name,
            told=told.name,
            probe=tf.group(probe).name,
            here=tf.identity(at).name,
            tell=tell.name,
            text=text.name,
        )
        local = {variable.handle.op.name for variable in v1.local_variables()}
    definition = graph.as_graph_def()
    for node in definition.node:
        if node.op == "VarHandleOp" and node.name in local:
            node.device = task(worker)
        elif _is_served(node) and node.name not in _manifest_names(servers):
            node.attr["shared_name"].s = node.name.encode()
    return Blueprint(servers, manifest, names, definition, graph)


def check_step(step: Any) -> Step:
    """Return what a model function returned, if it is a Step that can be made again for other servers."""
    if hasattr(step, "fit"):
        raise TypeError(FIT)
    if not isinstance(step, Step):
        raise TypeError(
            f"the model function returned {step!r}: it returns Step(train, {{name: placeholder}}, …)"
        )
    if not all(isinstance(each, tf.Operation) or hasattr(each, "op") for each in tf.nest.flatten(step.train)):
        raise TypeError(IDLE.format(train=step.train))
    for name, each in (*step.feed.items(), *step.fetch.items()):
        if not all(isinstance(part, tf.Tensor | tf.Operation) for part in tf.nest.flatten(each)):
            raise TypeError(f"{name} of Step is {each!r}: it should be a dense tensor of the graph")
    return step


def check_lookups(graph: Any) -> None:
    """Raise ValueError if ids are mapped to rows by the number of parts."""
    for op in graph.get_operations():
        if op.type != "ResourceGather" or PART not in op.inputs[0].op.name:
            continue
        ids = _behind(op.inputs[1])
        if ids.type == "DynamicPartition" and _behind(ids.inputs[1]).type == "FloorMod":
            raise ValueError(MOD.format(name=split(op.inputs[0].op.name)[0]))


def difference(own: Sequence[Entry], told: Sequence[Entry]) -> str:
    """Return a sentence about the variables in which two manifests differ; an empty one if none does."""
    if not (found := _differing(own, told)):
        return ""
    return f"{found} on the servers: all workers run the same model, from the first start of a job on"


def check_repeats(first: Blueprint, again: Blueprint) -> None:
    """Raise ValueError if a model that was made twice has other variables then: it is for other servers."""
    if found := _differing(first.manifest, again.manifest):
        raise ValueError(
            f"{found} when the model function is called again, as each change of servers does: let the "
            "names and shapes of its variables and layers depend on nothing else"
        )


def _differing(own: Sequence[Entry], told: Sequence[Entry]) -> str:
    here, there = ({entry.name: entry for entry in each} for each in (own, told))
    if here.keys() != there.keys():
        return (
            f"this worker's model has {_list(here.keys() - there.keys())} alone, and "
            f"{_list(there.keys() - here.keys())} are"
        )
    for name, mine in here.items():
        if mine != (other := there[name]):
            return f"variable {name} is {_describe(mine)} in this worker's model and {_describe(other)}"
    return ""


def _list(names: Collection[str], most: int = 5) -> str:
    """Return names, not too many of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more if names else "no variables"


class _Placement:
    """Which device each operation is on; one that is colocated with a variable comes to be there anyway."""

    def __init__(self, servers: int, worker: str) -> None:
        self._servers = servers
        self._own = v1.DeviceSpec.from_string(task(worker))

    def device(self, op: Any) -> str:
        asked = v1.DeviceSpec.from_string(op.device or "")
        if asked.job:
            return str(op.device)
        if op.type != "VarHandleOp":
            return str(self._own.make_merged_spec(asked).to_string())
        return task(SERVERS, server_of(op.name, self._servers))

    def entries(self, variables: Sequence[Any]) -> list[Entry]:
        """Return the manifest. Raises ValueError for a variable that the rule does not place."""
        found: dict[str, Entry] = {}
        for variable in variables:
            entry, op = _entry(variable), variable.handle.op
            rule = {part.name: task(SERVERS, part.server) for part in parts(entry, self._servers)}
            if rule.get(op.name) != op.device:
                raise ValueError(
                    f"variable {op.name} is at {op.device or 'no device'}, where servers do not "
                    "expect it: leave out partitioners, devices and colocation of your own"
                )
            found[entry.name] = entry
        return list(found.values())


def _entry(variable: Any) -> Entry:
    op, dtype = variable.handle.op, variable.dtype.base_dtype.name
    if not variable.shape.is_fully_defined():
        raise ValueError(f"variable {op.name} has the shape {variable.shape}: give all its dimensions")
    if PART in op.name:
        stem, slot = split(op.name)
        whole = variable._save_slice_info.full_shape  # TensorFlow has no public name for it
        return Entry(stem, slot, tuple(whole), dtype, True, stem)
    home = op.colocation_groups()[0].decode().removeprefix("loc:@")
    return Entry(op.name, "", tuple(variable.shape.as_list()), dtype, False, home)


def _cutting(servers: int, cut: int) -> Callable[..., Any]:
    """Return a getter that cuts large variables into rows; slots have the shape of what they belong to."""

    def cutting(getter: Callable[..., Any], name: str, *rest: Any, shape: Any = None, **more: Any) -> Any:
        sizes = tf.TensorShape(shape).as_list() if shape is not None else []
        if PART not in name and sizes and (sizes[0] or 0) >= cut:
            more["partitioner"] = v1.fixed_size_partitioner(servers)
        return getter(name, *rest, shape=shape, **more)

    return cutting


def _assigned_by_keras(graph: Any) -> list[Any]:
    """Return what assigns the values that layers of Keras give their variables, such as moving averages.

    Keras assigns as eager execution does, so in a graph nothing runs that. It is made here anew, after all
    reads of before. Raises ValueError for a second assignment, which would not see the first.
    """
    if (keras := sys.modules.get("keras")) is None:
        return []
    home = f"{keras.__path__[0]}/"
    variables = {each.handle.op.name: each for each in v1.global_variables()}
    reads: dict[str, list[Any]] = {}
    found: dict[str, Any] = {}
    for op in graph.get_operations():
        name = op.inputs[0].op.name if op.inputs else ""
        if name not in variables or op is variables[name].initializer:
            continue
        if op.type in READS:
            reads.setdefault(name, []).append(op)
        elif op.type in ASSIGNS and _caller(op).startswith(home):
            if name in found:
                raise ValueError(f"variable {name} is assigned twice in a step of Keras: call its layer once")
            variable, value = variables[name], op.inputs[1]
            with tf.device(variable.handle.device), tf.control_dependencies(reads.get(name, [])):
                found[name] = ASSIGNS[op.type](resource=variable.handle, value=value)
    return list(found.values())


def _caller(op: Any) -> str:
    """Return the file that had TensorFlow make an operation."""
    ours = f"{Path(tf.__file__).parent}/"
    files = (frame.filename for frame in reversed(op.traceback))
    return next((file for file in files if not file.startswith(ours)), "")


def _updates(operations: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether any of these operations, or of those that they need, changes a variable."""
    handles = {each.handle.op.name for each in variables}
    open_ = [each if isinstance(each, tf.Operation) else each.op for each in operations]
    seen = {op.name for op in open_}
    while open_:
        op = open_.pop()
        inputs = [each.op for each in op.inputs]
        if op.type not in READS and any(each.name in handles for each in inputs):
            return True
        for each in (*inputs, *op.control_inputs):
            if each.name not in seen:
                seen.add(each.name)
                open_.append(each)
    return False


def _manifest_ops(servers: int, text: Any) -> tuple[Any, list[Any], Any]:
    """Return what reads the manifest of the first server, of each, and what writes it, there last."""
    handles = []
    for server in range(servers):
        with tf.device(task(SERVERS, server)):
            handles.append(
                tf.raw_ops.VarHandleOp(
                    dtype=tf.string, shape=[], shared_name=MANIFEST, name=f"{MANIFEST}_{server}"
                )
            )
    others = [tf.raw_ops.AssignVariableOp(resource=each, value=text) for each in handles[1:]]
    with tf.control_dependencies(others):
        tell = tf.raw_ops.AssignVariableOp(resource=handles[0], value=text)
    read = []
    for server, each in enumerate(handles):
        with tf.device(task(SERVERS, server)):
            read.append(tf.raw_ops.ReadVariableOp(resource=each, dtype=tf.string))
    return read[0], read, tell


def _first_values(variables: Sequence[Any], manifests: Sequence[Any]) -> Any:
    """Return what gives variables their first values, unless their server has the manifest by then.

    A first worker may be stopped in the midst of this, given up, and go on when others have trained. So each
    server looks when a value has come, and a value that comes late changes nothing.
    """
    handles = {each.device: each.op.inputs[0] for each in manifests}
    done = []
    for variable in variables:
        make = variable.initializer
        if make.type != "AssignVariableOp":
            raise ValueError(f"variable {variable.name} is begun by {make.type}: give it an initializer")
        with tf.device(variable.handle.device):
            # An Identity would be optimized away, and a server look before a large value has come.
            value = tf.ensure_shape(make.inputs[1], variable.shape)
            with tf.control_dependencies([value]):
                told = tf.raw_ops.ReadVariableOp(resource=handles[variable.handle.device], dtype=tf.string)
            done.append(assign_if(tf.equal(told, ""), variable.handle, value))
    return tf.group(done)


def _manifest_names(servers: int) -> set[str]:
    return {f"{MANIFEST}_{server}" for server in range(servers)}


def _is_served(node: Any) -> bool:
    return bool(node.op == "VarHandleOp" and f"/job:{SERVERS}/" in node.device)


def _behind(tensor: Any) -> Any:
    """Return the operation that computes a tensor, casts and the like left out."""
    op = tensor.op
    while op.type in ("Cast", "Identity", "Reshape"):
        op = op.inputs[0].op
    return op


def _describe(entry: Entry) -> str:
    return f"{entry.dtype} {list(entry.shape)}{', cut into rows' if entry.cut else ''}, beside {entry.home}"
