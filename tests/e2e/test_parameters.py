"""Parameter servers with real processes: more, fewer, one moved, one killed, and each update counted once."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, role
from tests.kit.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "parameters"
RECORDS = 2000
PAUSE = "time.sleep(0.005)"
HOLD = """\
gate = {gate!r}
            while record == data.size - 1 and not os.path.exists(gate):
                time.sleep(0.01)
            time.sleep(0 if os.path.exists(gate) else 0.2)"""


def held(folder: Path, gate: Path) -> Path:
    """Return the example's worker as a program that does not make the last update before `gate` is there."""
    text = (EXAMPLE / "worker.py").read_text()
    assert text.count(PAUSE) == 1
    shutil.copy(EXAMPLE / "store.py", folder)
    program = folder / "worker.py"
    program.write_text(text.replace(PAUSE, HOLD.format(gate=str(gate))))
    return program


def spec(values: Path, worker: Path) -> Manifest:
    """Return the example's job with its values in a folder of this machine."""
    return {
        "distributionStrategy": "ParameterServerStrategy",
        "optimizeMode": "manual",
        "replicaSpecs": {
            "ps": role(["python", str(EXAMPLE / "server.py"), str(values)], 3, minReplicas=1, maxReplicas=6),
            "worker": role(["python", str(worker), str(RECORDS)], 2),
        },
    }


async def scale(site: Site, name: str, **changes: Any) -> None:
    """Do what a user does with a plan of their own, and wait until it is carried out."""
    metadata = {"name": name, "namespace": site.namespace}
    body = {"apiVersion": SCALEPLAN.api_version, "kind": SCALEPLAN.name, "metadata": metadata}
    await site.client.create(
        SCALEPLAN.untyped(), body | {"spec": {"ownerJob": "digits", "manualScaling": True, **changes}}
    )
    await site.until(lambda: _phase(site, name) == "Succeeded")


def _phase(site: Site, name: str) -> str:
    found = [
        plan for plan in site.operator.cache(SCALEPLAN).list(site.namespace) if plan.metadata.name == name
    ]
    return str(found[0].status.phase) if found and found[0].status.phase else ""


def counted(folder: Path) -> Callable[[], int]:
    """Return what counts the updates in the files of the servers."""
    sys.path.insert(0, str(EXAMPLE))
    total = importlib.import_module("store").total

    def count() -> int:
        try:
            counts: float = total(folder)[0]
            return round(counts)
        except (ValueError, FileNotFoundError):
            return 0

    return count


async def test_servers_come_go_move_and_die_and_no_update_is_lost(site: Site, tmp_path: Path) -> None:
    job, values, gate = Job(site), tmp_path / "values", tmp_path / "gate"
    count = counted(values)

    async def trained() -> None:
        """Wait for more updates."""
        target = count() + 20

        async def there() -> bool:
            return count() >= target

        await until(there, f"{target} updates")

    await site.apply(spec(values, held(tmp_path, gate)))
    await trained()
    await scale(site, "four", replicaResourceSpecs={"ps": {"replicas": 4}})
    await trained()
    await scale(site, "two", replicaResourceSpecs={"ps": {"replicas": 2}})
    await site.until(lambda: not job.running() & {"ps-2", "ps-3"})
    await trained()
    await scale(site, "move", migratePods=[{"name": "digits-ps-0", "resource": {"cpu": "100m"}}])
    await site.until(lambda: job.running() & {"ps-0", "ps-0-1"} == {"ps-0-1"})
    await trained()
    [process] = job.processes("ps-1")
    os.kill(process.pid, signal.SIGKILL)
    gate.touch()
    await site.until(job.has_ended("Complete"))
    assert count() == RECORDS
    assert {"ps-0-1", "ps-1-1"} <= job.born.keys()
