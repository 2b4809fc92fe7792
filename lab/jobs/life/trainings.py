"""The twelve kinds of trainings: their scripts, their shapes, what may change between two of their lives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final


@dataclass(frozen=True)
class Arguments:
    """The arguments of the script in one life of a training, and the number of nodes."""

    seed: int = 0
    batch: int = 8
    records: int = 200
    epochs: int = 3
    nodes: int = 2

    @property
    def steps(self) -> int:
        """How many steps they make."""
        return self.epochs * -(-self.records // self.batch)

    def flags(self) -> list[str]:
        """Return the script's arguments."""
        given = {"seed": self.seed, "batch": self.batch, "records": self.records, "epochs": self.epochs}
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Training:
    """A kind of script. `changes` may differ between two lives; `most` lives can follow one another."""

    name: str
    file: str
    arguments: Arguments = Arguments()
    procs: int = 1
    flags: tuple[str, ...] = ()
    micro: int = 1
    """The number of batches in a step."""
    changes: tuple[str, ...] = ("seed", "batch", "records")
    most: int = 3
    imports: tuple[str, ...] = ()
    near: float = 0.0
    """How far numbers may be from the undisturbed training's: sums in another order, on fewer nodes."""
    shards: bool = False
    """Whether it has no steps, only records of shards on lease."""
    ahead: int = 0
    """How many of those its processes read ahead, which is lost with a worker."""
    without: frozenset[str] = field(default=frozenset())
    """Troubles that mean nothing to it."""

    @property
    def rigid(self) -> bool:
        """Whether the number of nodes must stay: the loop counts batches of its own size."""
        return "nodes" not in self.changes

    def at(self, nodes: int) -> Arguments:
        """Return its arguments on so many nodes."""
        return replace(self.arguments, nodes=nodes)


RESTART: Final = ("--recovery", "restart")
ELASTIC: Final = ("seed", "batch", "records", "nodes")
SHORT: Final = Arguments(nodes=1, records=128)
NO_EVALUATION: Final = frozenset({"term-evaluating"})
STORAGE: Final = frozenset(
    {"storage-timeout", "storage-full", "storage-readonly", "storage-missing", "storage-slow", "term-saving"}
)
LOOP: Final = NO_EVALUATION | {"storage-missing"}
"""Of one node, whose storage can be missing for nobody else."""


def elastic(name: str, **more: Any) -> Training:
    """Return a kind that trains with `Elastic`."""
    return Training(name, "with_elastic.py", changes=ELASTIC, **more)


def whatever_the_world(name: str) -> Training:
    """Return a kind whose state does not depend on the number of its workers."""
    return Training(name, "with_checkpoint.py", flags=RESTART, changes=("nodes",), without=NO_EVALUATION)


def framework(name: str, module: str, **more: Any) -> Training:
    """Return a kind that trains with a loop of a framework, which a module has."""
    own = {"changes": (), "imports": (module,), "without": LOOP, **more}
    return Training(name, f"with_{name}.py", SHORT, flags=RESTART, **own)


ALL: Final = (
    elastic("digits", without=NO_EVALUATION),
    elastic("plateau"),
    elastic("readers"),
    elastic("stream"),
    elastic("weights"),
    elastic("divided", procs=2, near=1e-9),
    whatever_the_world("plain"),
    whatever_the_world("fsdp"),
    framework("huggingface", "transformers.trainer"),
    framework("lightning", "lightning.pytorch", micro=2),
    framework("accelerate", "accelerate"),
    Training(
        "shards",
        "with_shards.py",
        flags=RESTART,
        changes=(),
        most=1,
        shards=True,
        ahead=30,  # two processes with two batches of five each, and one under way
        without=LOOP | STORAGE,
    ),
)
NAMED: Final = {each.name: each for each in ALL}
