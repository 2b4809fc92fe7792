"""What pictures and the test of accessibility show: many jobs, none, a cluster in trouble, a report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from math import sin
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.report.page import Setting, page
from elasticjob.cli.story.seen import Message
from elasticjob.kube.objects.views import EVENT, NODE, POD
from elasticjob.page.seen import Cluster, Fleet, Master, One, Standing
from elasticjob.page.series import Point
from elasticjob.page.status import status_of
from elasticjob.page.view import fleet, one, silence
from elasticjob.page.watch import LATER, RIGHTS
from lab.build.jobs import at
from tests.cli.report.test_report import result

SOURCE: Final = Path(__file__).with_suffix(".yaml")
TIME: Final = re.compile(r'"([-+]\d+)([mhd])"')
UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
HERE: Final = Cluster(server="https://10.0.0.1:6443", ready=True)
AWAY: Final = {
    "away": ("the API server does not answer within 5 s", LATER),
    "forbidden": ('you may not list elasticjobs: User "ann" cannot list it in namespace "ml"', RIGHTS),
    "no-operator": ("this cluster does not know ElasticJobs", "install the operator: docs/install.md"),
}
TROUBLES: Final[Mapping[str, Cluster]] = {"empty": HERE} | {
    name: replace(HERE, ready=False, api=Standing(why, act=act)) for name, (why, act) in AWAY.items()
}


@dataclass(frozen=True)
class Scene:
    """Answers as a Watch does, from scenes.yaml, of so many jobs; of a cluster in trouble without any."""

    jobs: int = 40
    cluster: Cluster = HERE

    async def fleet(self) -> bytes:
        jobs = list(islice(_jobs(), self.jobs))
        found = read() if jobs else {"pods": (), "nodes": ()}
        pods, nodes = list(map(POD.convert, found["pods"])), list(map(NODE.convert, found["nodes"]))
        seen = Fleet(self.cluster, jobs, pods, nodes, {job.metadata.uid: _series() for job in jobs})
        return msgspec.json.encode(fleet(seen, datetime.now(UTC)))

    async def job(self, namespace: str, name: str) -> bytes:
        found, now = read(), datetime.now(UTC)
        seen = One(
            self.cluster,
            namespace,
            name,
            next((job for job in _jobs(2) if job.metadata.name == name), None),
            list(map(POD.convert, found["pods"])),
            list(map(NODE.convert, found["nodes"])),
            list(map(SCALEPLAN.convert, found["plans"])),
            list(map(EVENT.convert, found["events"])),
            master=Master(status_of(msgspec.json.encode(found["master"])), now),
            series=_series(),
        )
        return msgspec.json.encode(one(seen, now))

    async def log(self, namespace: str, name: str, container: str = "") -> bytes:
        note = next(
            silence(pod, "main") for pod in map(POD.convert, read()["pods"]) if pod.metadata.name == name
        )
        text = "".join(f"step {step}: loss {2 / step:.4f}\n" for step in range(100, 2000, 100))
        return msgspec.json.encode({"text": "" if note else text, "note": note})


def report(folder: Path) -> str:
    """Write the report of a demo; return its URL."""
    told, said = result(), read()["said"]
    messages = tuple(
        Message(told.began + 3 * at, "Told", said[at % len(said)], at % 4 == 2) for at in range(12)
    )
    lines = tuple(replace(line, messages=messages[at : at + 3]) for at, line in enumerate(told.lines))
    setting = Setting("digits", yaml.safe_dump(read()["healthy"][0]), {"python": "3.11", "torch": "2.10"})
    file = folder / "report.html"
    file.write_text(page(replace(told, lines=lines, messages=messages), setting))
    return file.as_uri()


def read() -> Any:
    """Return what scenes.yaml says, with times."""
    now = datetime.now(UTC)
    moment = lambda told: f'"{at(now + timedelta(**{UNITS[told[2]]: int(told[1])}))}"'  # noqa: E731
    return json.loads(TIME.sub(moment, json.dumps(yaml.safe_load(SOURCE.read_text()))))


def _jobs(times: int = 1000) -> Iterator[ElasticJob]:
    found = read()
    again = ((f"-{number}", each) for number in range(1, times) for each in found["healthy"])
    for number, (suffix, each) in enumerate(chain((("", each) for each in found["troubled"]), again)):
        about = {**each["metadata"], "name": each["metadata"]["name"] + suffix, "uid": f"u{number}"}
        yield ELASTICJOB.convert({**each, "metadata": about})


def _series() -> list[Point]:
    now = datetime.now(UTC).timestamp()
    return [Point(now - 4000 + 20 * n, 3 + 0.3 * sin(n), 1500 + 90 * sin(n / 2), 6, 0.9) for n in range(200)]
