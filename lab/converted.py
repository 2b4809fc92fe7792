"""Whether converted jobs run: each on devcluster, with images and scripts replaced by one that looks around.

`python -m lab.converted [NAME...]` plays the manifests of tests/cli/convert and prints a table. What each is
meant to be is in worlds.yaml beside them, written by hand from the other system's own rules.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob.api.roles import is_master
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.convert.conversion import Outcome, outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.client.objects import IMAGE
from elasticjob.devcluster import DevCluster
from elasticjob.kube.objects.kinds import Manifest
from lab.chosen import chosen
from lab.jobs.job import staged
from lab.jobs.site import Site, lent
from lab.paths import ROOT, SCRIPTS

FOLDER: Final = ROOT / "tests" / "cli" / "convert"
SCRIPT: Final = SCRIPTS / "e2e" / "converted.py"
AT_ONCE: Final = 3
OF_A_CLUSTER: Final = ("nodeSelector", "serviceAccountName", "schedulerName", "imagePullSecrets")
OF_THE_SPEC: Final = ("suspend", "managedBy", "resourceLimits", "nodeCheck")


def main(names: list[str]) -> int:
    """Play the manifests of these names, and print what became of each."""
    rows = asyncio.run(_whole(names))
    for name, (expected, problem) in rows.items():
        print(f"| {name} | {expected} | {problem or 'as meant'} |")
    return 1 if any(problem for _, problem in rows.values()) else 0


async def _whole(names: list[str]) -> dict[str, tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            DevCluster(Path(folder)) as cluster,
            staged(cluster, Path(folder)) as stage,
            lent(stage.client, stage.onlooker, "converted") as site,
        ):
            return await played(site, Path(folder), names)


async def played(site: Site, folder: Path, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return what each manifest is meant to be, and what it was instead; "" if it was so."""
    worlds: dict[str, Manifest] = yaml.safe_load((FOLDER / "worlds.yaml").read_text())
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, name: str, meant: Manifest) -> str:
        found = converted(name)
        if "told" in meant:
            told = [found.refusal, *map(str, found.converted.notes if found.converted else ())]
            return "" if any(meant["told"] in each for each in told) else f"it does not say {meant['told']!r}"
        async with gate:
            return await _play(site, folder, f"c{number}", found, meant)

    missing = {path.relative_to(FOLDER / "manifests").as_posix() for path in _files()} - worlds.keys()
    assert not missing, f"worlds.yaml does not say what {sorted(missing)} are meant to be"
    some = [(at, name, meant) for at, (name, meant) in enumerate(worlds.items()) if name in names]
    problems = await asyncio.gather(*(one(*each) for each in some))
    return {name: (_said(meant), problem) for (_, name, meant), problem in zip(some, problems, strict=True)}


def _files() -> Iterator[Path]:
    for path in sorted((FOLDER / "manifests").glob("*/*")):
        if "kind: ScalePlan" not in path.read_text() and "kind: JobResource" not in path.read_text():
            yield path


def converted(name: str) -> Outcome:
    """Convert a manifest, which an expected job may follow."""
    [source] = sources(name, (FOLDER / "manifests" / name).read_text().partition("\n---\n")[0])
    return outcome(source, SYSTEMS)


async def _play(site: Site, folder: Path, name: str, found: Outcome, meant: Manifest) -> str:
    assert found.converted is not None, found.refusal
    place = folder / name
    place.mkdir()
    world = meant["roles"].get("worker", 0) * meant.get("each", 0)
    told = {
        "FOLDER": str(place),
        "PODS": str(sum(meant["roles"].values())),
        "WORLD": str(world),
        "MOUNTS": " ".join(meant.get("mounts", ())),
    }
    envs = {f"CONVERTED_{key}": {"value": value} for key, value in told.items()}
    await site.apply(runnable(found.converted.job, envs), name, {"labels": {"app": name}})

    def ended() -> bool:
        return any(site.condition(each, name)[0] == "True" for each in ("Complete", "Failed"))

    try:
        await site.until(ended, within=120)
    except AssertionError:
        return f"it did not end: {site.job(name).status.manifest()}"
    failed, reason, message = site.condition("Failed", name)
    facts = [json.loads(path.read_text()) for path in place.glob("*.json")]
    await site.client.delete(ELASTICJOB, name, site.namespace)
    return f"{reason}: {message}" if failed == "True" else ", ".join(_differences(facts, meant, world))


def _differences(facts: list[Manifest], meant: Manifest, world: int) -> Iterator[str]:
    """Compare what the scripts have noted with what is meant."""
    nodes = Counter(role for role, _ in {(each["role"], each["node"]) for each in facts})
    if dict(nodes) != meant["roles"]:
        yield f"pods were {dict(nodes)}"
    workers = [each for each in facts if each["role"] == "worker" and (each["world"] or 0) == world]
    if world and sorted({each["rank"] for each in workers}) != list(range(world)):
        yield f"ranks were {sorted({each['rank'] for each in workers})} of {world}"
    for each in workers:
        index = each["node"].rpartition("-")[2]
        if each["arguments"] != [
            index if word == "INDEX" else str(word) for word in meant.get("arguments", [])
        ]:
            yield f"the arguments were {each['arguments']}"
        environment = {name: str(value) for name, value in meant.get("environment", {}).items()}
        if not environment.items() <= each["environment"].items():
            yield f"the environment had not {environment}"
        if not all(each["mounts"]):
            yield f"not all of {meant['mounts']} are there"


def runnable(job: Manifest, envs: Mapping[str, Manifest]) -> Manifest:
    """Return the spec of a job without what this machine lacks, and with the script that looks around."""
    spec = {name: value for name, value in deepcopy(job["spec"]).items() if name not in OF_THE_SPEC}
    spec["envs"] = {**spec.get("envs", {}), **envs}
    policy = spec.get("runPolicy", {})
    spec["runPolicy"] = {
        name: value for name, value in policy.items() if name not in ("scheduling", "ttlSecondsAfterFinished")
    }
    for name, role in spec["replicaSpecs"].items():
        pod = role["template"]["spec"] if "template" in role and not is_master(name) else {"containers": []}
        for field in OF_A_CLUSTER:
            pod.pop(field, None)
        for volume in pod.get("volumes", ()):
            if "emptyDir" not in volume:
                del volume[next(source for source in volume if source != "name")]
                volume["emptyDir"] = {}
        for container in pod["containers"]:
            _replace(container)
    return spec


def _replace(container: Manifest) -> None:
    """Let a container run the script that looks around, in the way in which it ran its own."""
    container.pop("workingDir", None)
    container |= {"image": IMAGE, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    words = [*container.get("command", ()), *container.get("args", ())]
    if not any(re.search(r"\.py\b", word) for word in words):
        container.pop("args", None)
        container["command"] = ["python", str(SCRIPT)]
    for name in ("command", "args"):
        if name in container:
            container[name] = [
                re.sub(r"[\w./-]*\b\w+\.py\b", str(SCRIPT), word.replace("cd /code", "cd /tmp"))
                if str(SCRIPT) not in word
                else word
                for word in container[name]
            ]


def _said(meant: Mapping[str, Any]) -> str:
    return f"told: {meant['told']}" if "told" in meant else json.dumps(meant)


if __name__ == "__main__":
    sys.exit(main(chosen(__doc__, yaml.safe_load((FOLDER / "worlds.yaml").read_text()))))
