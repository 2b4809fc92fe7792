"""The systems that are compared: how each starts a node of a training, and what has to run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from secrets import token_hex
from typing import Final

PEERS: Final = Path(os.environ.get("BENCH_PEERS") or Path(sys.prefix, "peers"))
"""Where `hack/peers` puts an environment for each peer."""


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and what it wants in its environment."""

    words: list[str]
    environ: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, words: list[str]) -> Command:
        return Command([*self.words, *words], self.environ)


@dataclass(frozen=True)
class Shape:
    """A job of at most so many nodes with so many workers each; it may train with one node."""

    nodes: int
    workers: int


@dataclass(frozen=True)
class Site:
    """A job of this machine: its port is the master's, or that of the rendezvous."""

    shape: Shape
    port: int
    name: str


@dataclass(frozen=True)
class System:
    """A way to run the training: `node(site, rank)` starts a node of it, `service(site)` what they need."""

    name: str
    script: str
    node: Callable[[Site, int], Command]
    service: Callable[[Site], Command] | None = None
    peer: str = ""
    grouped: bool = False
    """A worker is a node of its own: there are no nodes of several workers that fail apart."""
    keeps: bool = False
    """Workers that are left have the state, and train on without a save."""
    shrinks: bool = False
    """Its ranks are those of the start: none comes, and none comes back."""

    def shape(self, wanted: Shape) -> Shape:
        """Return the shape in which this system has so many workers."""
        return Shape(wanted.nodes * wanted.workers, 1) if self.grouped else wanted

    def unusable(self) -> str:
        """Return why it cannot run here, or nothing."""
        return missing(self.peer) if self.peer else ""


def ours(recovery: str, site: Site, rank: int) -> Command:
    """Return how `elasticjob run` is called."""
    words = [sys.executable, "-m", "elasticjob.cli", "run", "--recovery", recovery, "--max-restarts", "1000"]
    words += ["--nproc-per-node", str(site.shape.workers)]
    if site.shape.nodes == 1:
        return Command([*words, "--standalone"])
    words += [f"--nnodes=1:{site.shape.nodes}", f"--node-rank={rank}"]
    return Command([*words, f"--rdzv-endpoint=127.0.0.1:{site.port}"])


def torchrun(site: Site, rank: int) -> Command:
    """Return how torchrun is called, with its own defaults."""
    words = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", "1000"]
    words += ["--nproc-per-node", str(site.shape.workers)]
    if site.shape.nodes == 1:
        return Command([*words, "--standalone"])
    words += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{site.port}", "--rdzv-id=bench"]
    words.append(
        f"--rdzv-conf=is_host={int(rank == 0)}"
    )  # or the node that is killed may hold the rendezvous
    return Command([*words, f"--nnodes=1:{site.shape.nodes}", "--local-addr=127.0.0.1"])


def dlrover(site: Site, rank: int) -> Command:
    """Return how DLRover's agent is called where there is a master."""
    place = {"NODE_RANK": str(rank), "NODE_ID": str(rank), "NODE_NUM": str(site.shape.nodes)}
    job = {"DLROVER_MASTER_ADDR": f"127.0.0.1:{site.port}", "ELASTIC_JOB_NAME": site.name}
    words = [python("dlrover"), "-m", "dlrover.trainer.torch.elastic_run", f"--nnodes=1:{site.shape.nodes}"]
    words += ["--nproc-per-node", str(site.shape.workers), "--max-restarts", "1000"]
    return Command(words, {**place, **job, "NODE_TYPE": "worker", "POD_IP": "127.0.0.1"})


def dlrover_master(site: Site) -> Command:
    """Return how its master is called without Kubernetes."""
    words = [python("dlrover"), "-m", "dlrover.python.master.main", "--platform", "local"]
    size = ["--node_num", str(site.shape.nodes), "--job_name", site.name]
    return Command([*words, "--port", str(site.port), *size])


def torchft(site: Site, rank: int) -> Command:
    """Return how a replica group is started: by torchrun, as in torchft's own example."""
    words = [python("torchft"), "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1000"]
    environ = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{site.port}", "REPLICA_GROUP_ID": str(rank)}
    return Command([*words, "--nproc-per-node", "1"], environ)


def lighthouse(site: Site) -> Command:
    """Return how torchft's lighthouse is called, with the settings of its own example."""
    program = str(PEERS / "torchft" / "bin" / "torchft_lighthouse")
    words = ["--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
    return Command([program, *words, "--bind", f"127.0.0.1:{site.port}"])


def ray(site: Site, rank: int) -> Command:
    """Return how a node of Ray is started; the first one is the head, and runs the script."""
    folder = Path(tempfile.gettempdir(), site.name, "ray")
    words = [python("ray"), "-m", "benchmarks.training.peers.ray", str(rank), str(site.port)]
    environ = {"BENCH_WORKERS": str(site.shape.nodes * site.shape.workers)}
    environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}  # its ports are open beyond loopback
    return Command([*words, str(site.shape.workers), str(folder)], environ)


def nvrx(site: Site, rank: int) -> Command:
    """Return how a rank is started: by itself, since torchrun ends all when one of them is lost."""
    place = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(site.shape.nodes)}
    return Command([python(NVRX_PEER)], {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(site.port)})


TOKEN: Final = token_hex(32)
NVRX_PEER: Final = "nvidia-resiliency-ext"
OURS: Final = System("elasticjob", "elastic_steps.py", partial(ours, "in-process"), keeps=True)
RESTARTED: Final = System("elasticjob, restart", "plain_steps.py", partial(ours, "restart"))
TORCHRUN: Final = System("torchrun", "plain_steps.py", torchrun)
DLROVER: Final = System("DLRover", "plain_steps.py", dlrover, dlrover_master, "dlrover")
TORCHFT: Final = System(
    "torchft", "torchft_steps.py", torchft, lighthouse, "torchft", grouped=True, keeps=True
)
RAY: Final = System("Ray Train", "ray_steps.py", ray, peer="ray")
NVRX: Final = System("NVRx", "nvrx_steps.py", nvrx, peer=NVRX_PEER, grouped=True, shrinks=True)
SYSTEMS: Final = (OURS, RESTARTED, TORCHRUN, DLROVER, TORCHFT, RAY, NVRX)
KEEPERS: Final = (RESTARTED, TORCHRUN, DLROVER)
"""The systems that start a plain script again, which goes on from what it has saved."""
MODULES: Final = {
    "dlrover": "dlrover.trainer.torch.elastic_run",
    "torchft": "torchft",
    "ray": "ray.train.torch",
    NVRX_PEER: "nvidia_resiliency_ext.inprocess",
}


def python(peer: str) -> str:
    """Return the interpreter of a peer's environment."""
    return str(PEERS / peer / "bin" / "python")


def missing(peer: str) -> str:
    """Return why a peer cannot be used, in the words of pip or of Python; nothing if it can."""
    if not Path(python(peer)).exists():
        log = PEERS / f"{peer}.log"
        return last_error(log.read_text()) if log.exists() else "not installed: hack/peers installs it"
    command = [python(peer), "-c", f"import {MODULES[peer]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return last_error(done.stderr) if done.returncode else ""


def last_error(text: str) -> str:
    """Return the last line of a program's errors that names one, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith("error") or "Error: " in line]
    return (named or lines or ["it said nothing"])[-1][:300]


def versions() -> dict[str, str]:
    """Return the versions of what is compared."""
    found = {each.name: each.version for each in distributions() if each.name in ("elasticjob", "torch")}
    for peer in MODULES:
        for folder in (PEERS / peer).glob(f"lib/python3*/site-packages/{peer.replace('-', '_')}-*.dist-info"):
            found[peer] = folder.name.removesuffix(".dist-info").rpartition("-")[2]
    return dict(sorted(found.items()))
