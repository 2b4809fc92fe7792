"""A parameter server: it keeps variables of TensorFlow, and takes them over from others or from a checkpoint.

Each version of the cluster has a container of its own, so old and new values are there side by side during a
move, and a worker that was cut off writes to values that are not used any more. The manifest is a variable
beside them, empty until a worker has made the first values. No code of the model runs here.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final

from elasticjob.api.rpc.parameters import Kept, Positions
from elasticjob.trainer.servers.serving import Gone, Move
from elasticjob.trainer.tensorflow import files
from elasticjob.trainer.tensorflow.compat import (
    Jobs,
    config,
    container,
    message_of,
    start_server,
    task,
    tf,
    v1,
)
from elasticjob.trainer.tensorflow.partitions import (
    Entry,
    Part,
    decode,
    encode,
    of_server,
    pieces,
    slice_spec,
)
from elasticjob.trainer.tensorflow.threads import Threads

log = logging.getLogger("elasticjob.tensorflow")

MANIFEST: Final = "elasticjob/manifest"
"""A variable on each server. That of the first one is written last, and read by workers."""
LARGE: Final = 600.0
"""Seconds that a move or the writing of a checkpoint may take."""
AWAY: Final = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)
ABSENT: Final = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)


@dataclass(frozen=True)
class _Shelf:
    """A container on this server: its name, and which of how many servers this is for it."""

    container: str
    place: int
    servers: int


class Server:
    """The values of one server; `folder` is that of the checkpoints, the same for all servers and workers."""

    def __init__(self, address: str, folder: Path | None = None) -> None:
        self._server, self.address = start_server(address)
        self._folder = folder or Path()
        # A server ends the sessions of another client whose job has the same name.
        self._name = f"server{uuid.uuid4().hex[:12]}"
        self._here = task(self._name)
        self._version = 0
        self._versions: dict[int, _Shelf] = {}
        self._copies: dict[int, _Shelf] = {}
        self._lock = threading.Lock()
        self._threads = Threads()

    def take_over(self, move: Move) -> None:
        """Read the values from the servers before or a checkpoint into the container of the version."""
        shelf = self._versions[move.version] = _Shelf(container(move.version), move.me, len(move.after))
        if move.restores:
            self._restore(shelf, move.restores)
        elif move.restores == 0 or not move.before:
            with self._session() as session:
                session.run(self._assign(shelf, MANIFEST, tf.constant(b"")))
        else:
            try:
                others = [address for address in move.before if address != self.address]
                self._threads.while_there(others, partial(self._read_from, move, shelf))
            except AWAY as error:
                raise ConnectionError(f"version {move.since} does not answer: {message_of(error)}") from None
            except ABSENT as error:
                raise Gone(f"version {move.since} has lost values: {message_of(error)}") from None

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        """Drop the values of all other versions."""
        self._version = version
        for other in [each for each in self._versions if each != version]:
            self._drop(self._versions.pop(other))

    def newest(self) -> Kept | None:
        """Return the newest complete checkpoint of the folder."""
        for number in reversed(files.complete(self._folder)):
            try:
                beside = files.read_beside(self._folder, number)
                self._check(beside)
                return Kept(number=number, positions=beside.positions)
            except (OSError, ValueError, tf.errors.OpError) as error:
                log.warning("checkpoint %d is damaged, an older one is looked for: %s", number, error)
        return None

    def _check(self, beside: files.Beside) -> None:
        """Raise what is wrong with a checkpoint, as far as its index and the sizes of its files tell."""
        if not (entries := beside.manifest):
            return  # there were no values yet
        there = tf.train.load_checkpoint(str(files.prefix(self._folder, beside.number)))
        shapes = there.get_variable_to_shape_map()
        if lacks := [each.name for each in entries if shapes.get(each.name) != list(each.shape)]:
            raise ValueError(f"its index lacks {', '.join(lacks[:3])}")
        needed = sum(tf.as_dtype(each.dtype).size * prod(each.shape) for each in entries)
        if (size := files.size(self._folder, beside.number)) < needed:
            raise ValueError(f"its files have {size} bytes, and its variables {needed}")

    def copy(self, number: int) -> None:
        """Keep the values as they are now, in memory."""
        with self._lock:
            unfinished = [self._copies.pop(each) for each in list(self._copies)]
        for each in unfinished:
            self._drop(each)
        shelf = self._versions[self._version]
        copied = _Shelf(f"s{number}", shelf.place, shelf.servers)
        with self._session() as session:
            manifest = self._manifest(session, shelf)
            ops = [self._assign(copied, MANIFEST, tf.constant(encode(manifest)))]
            for entry, part in of_server(manifest, shelf.servers, shelf.place):
                value = self._value(shelf, part.name, entry.dtype, part.shape)
                ops.append(self._assign(copied, part.name, value, entry.dtype, part.shape))
            session.run(tf.group(ops))
        with self._lock:
            self._copies[number] = copied

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        """Write what was copied; the first server writes the manifest and the positions, too."""
        with self._lock:
            shelf = self._copies[number]
        try:
            self._write(shelf, number, positions)
        except tf.errors.OpError as error:
            raise OSError(f"{self._folder} does not take checkpoint {number}: {message_of(error)}") from None
        with self._lock:
            if self._copies.pop(number, None):
                self._drop(shelf)

    def keep(self, number: int) -> None:
        """Delete what is older than this checkpoint and the one before it."""
        if self._version in self._versions and self._versions[self._version].place == 0:
            files.delete_before(self._folder, number)

    def _read_from(self, move: Move, shelf: _Shelf) -> None:
        """Fill the container with slices of the servers before."""
        others = {k: address for k, address in enumerate(move.before) if address != self.address}
        old = _Shelf(container(move.since), 0, len(move.before))

        def device(server: int) -> str:  # an address may be in a cluster once
            return self._here if move.before[server] == self.address else task("before", server)

        def value(entry: Entry, part: Part) -> Any:
            found = []
            for piece in pieces(entry, part, len(move.before)):
                at = piece.part
                with tf.device(device(at.server)):
                    whole = _read(old.container, at.name, entry.dtype, at.shape)
                    found.append(whole if piece.rows is None else whole[slice(*piece.rows)])
            return tf.concat(found, 0) if len(found) > 1 else found[0]

        with self._session(others) as session:
            with tf.device(device(0)):
                text = _read(old.container, MANIFEST, "string", ())
            manifest = _decoded(session.run(text))
            self._fill(session, shelf, manifest, [value(*each) for each in _own(shelf, manifest)])

    def _restore(self, shelf: _Shelf, number: int) -> None:
        """Fill the container from a checkpoint that any number of servers wrote."""
        beside = files.read_beside(self._folder, number)
        own = _own(shelf, beside.manifest)
        try:
            with self._session() as session, tf.device(self._here):
                values = own and tf.raw_ops.RestoreV2(
                    prefix=str(files.prefix(self._folder, number)),
                    tensor_names=[entry.name for entry, _ in own],
                    shape_and_slices=[slice_spec(*each) for each in own],
                    dtypes=[tf.as_dtype(entry.dtype) for entry, _ in own],
                )
                self._fill(session, shelf, beside.manifest, values)
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
            files.set_aside(self._folder, number)
            raise Gone(f"checkpoint {number} of {self._folder} is damaged: {message_of(error)}") from None
        except tf.errors.OpError as error:
            raise OSError(
                f"checkpoint {number} of {self._folder} cannot be read: {message_of(error)}"
            ) from None

    def _fill(self, session: Any, shelf: _Shelf, manifest: Sequence[Entry], values: Sequence[Any]) -> None:
        """Assign the values, and then the manifest.

        An attempt that was left behind when a server could not be reached may go on late, when the next one
        has succeeded and training goes on: what comes when the manifest is there changes nothing.
        """
        ops = []
        with tf.device(self._here):
            filled = handle(shelf.container, MANIFEST, "string", ())
            for (entry, part), value in zip(_own(shelf, manifest), values, strict=True):
                come = tf.ensure_shape(value, part.shape)
                with tf.control_dependencies([come]):
                    is_open = tf.logical_not(tf.raw_ops.VarIsInitializedOp(resource=filled))
                variable = handle(shelf.container, part.name, entry.dtype, part.shape)
                ops.append(assign_if(is_open, variable, come))
        with tf.control_dependencies(ops):
            done = self._assign(shelf, MANIFEST, tf.constant(encode(manifest) if manifest else b""))
        session.run(done)

    def _write(self, shelf: _Shelf, number: int, positions: Positions) -> None:
        files.folder_in_work(self._folder, number).mkdir(parents=True, exist_ok=True)
        with self._session() as session, tf.device(self._here):
            manifest = self._manifest(session, shelf)
            if own := _own(shelf, manifest):
                save = tf.raw_ops.SaveV2(
                    prefix=str(files.shard(self._folder, number, shelf.place)),
                    tensor_names=[entry.name for entry, _ in own],
                    shape_and_slices=[slice_spec(*each) for each in own],
                    tensors=[self._value(shelf, part.name, entry.dtype, part.shape) for entry, part in own],
                )
                session.run(save)
        if shelf.place == 0:
            files.write_beside(self._folder, files.Beside(number, shelf.servers, manifest, positions))

    def _drop(self, shelf: _Shelf) -> None:
        """Free the memory of a container."""
        with self._session() as session:
            own = _own(shelf, self._manifest(session, shelf))
            names = [(part.name, entry.dtype, part.shape) for entry, part in own]
            with tf.device(self._here):
                session.run([_destroy(shelf.container, *each) for each in (*names, (MANIFEST, "string", ()))])

    def _manifest(self, session: Any, shelf: _Shelf) -> tuple[Entry, ...]:
        """Return the manifest that this server has; an empty one if there are no values yet."""
        try:
            return _decoded(session.run(self._value(shelf, MANIFEST, "string", ())))
        except ABSENT:
            return ()

    def _value(self, shelf: _Shelf, name: str, dtype: str, shape: Sequence[int]) -> Any:
        with tf.device(self._here):
            return _read(shelf.container, name, dtype, shape)

    def _assign(
        self, shelf: _Shelf, name: str, value: Any, dtype: str = "string", shape: Sequence[int] = ()
    ) -> Any:
        with tf.device(self._here):
            return tf.raw_ops.AssignVariableOp(
                resource=handle(shelf.container, name, dtype, shape), value=value
            )

    @contextmanager
    def _session(self, before: Mapping[int, str] | None = None) -> Iterator[Any]:
        """A session and its graph, with this server and those before."""
        jobs: Jobs = {self._name: [self.address], "before": before or {}}
        with tf.Graph().as_default() as graph:
            session = v1.Session(self._server.target, graph=graph, config=config(jobs, LARGE))
            try:
                yield session
            finally:
                self._threads.close(session)


def handle(container: str, name: str, dtype: str, shape: Sequence[int]) -> Any:
    """Return the handle of a variable, on the device of the context."""
    return tf.raw_ops.VarHandleOp(
        dtype=tf.as_dtype(dtype), shape=list(shape), container=container, shared_name=name
    )


def assign_if(condition: Any, variable: Any, value: Any) -> Any:
    """Assign a value where a condition holds; return what has come when that is done, or left."""
    left, assigned = tf.raw_ops.Switch(data=condition, pred=condition)
    first = tf.raw_ops.Switch(data=value, pred=condition).output_true
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=variable, value=first)]):
        assigned = tf.identity(assigned)
    return tf.raw_ops.Merge(inputs=[left, assigned]).output


def _read(container: str, name: str, dtype: str, shape: Sequence[int]) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle(container, name, dtype, shape), dtype=tf.as_dtype(dtype))


def _destroy(container: str, name: str, dtype: str, shape: Sequence[int]) -> Any:
    return tf.raw_ops.DestroyResourceOp(
        resource=handle(container, name, dtype, shape), ignore_lookup_error=True
    )


def _own(shelf: _Shelf, manifest: Sequence[Entry]) -> list[tuple[Entry, Part]]:
    return of_server(manifest, shelf.servers, shelf.place)


def _decoded(text: bytes) -> tuple[Entry, ...]:
    return decode(text) if text else ()
