"""Acts of users, machines and other writers: a row each, with its weight, its fields, and its deed.

`draw` returns the fields of a line, from chance and from the jobs that were submitted before, by their names.
A deed that finds nothing to do does nothing: a line may be taken away, and the others still mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.names import coordinator
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from lab.simulation.autoscaler import HPA, GitOps
from lab.simulation.history import Value
from lab.simulation.reading import labels_of, name_of
from lab.simulation.records import records
from lab.virtual import cluster
from lab.virtual.cluster import MACHINES, TEAM, job
from lab.virtual.server import Verbs

if TYPE_CHECKING:
    from lab.simulation.world import World

Given = Mapping[str, Value]
Jobs = Mapping[str, Given]
"""Of the jobs that were submitted so far: the fields of that line."""
Draw = Callable[[Random, Jobs], Given | None]
Deed = Callable[..., Coroutine[Any, Any, None]]
CODES: Final = (0, 1, 137, 143, 3)
OF_A_ROLE: Final = {
    "workers": "replicas",
    "least": "minReplicas",
    "most": "maxReplicas",
    "restarts": "restartCount",
}
OF_A_JOB: Final[Mapping[str, Callable[[Value], Manifest]]] = {
    "env": lambda value: {"envs": {"WORD": {"value": value}}},
    "network": lambda value: {"networkPolicy": value == "yes"},
    "strategy": lambda value: {"distributionStrategy": value},
}
"""Fields of a line, and what they are of a role, or in the spec of a job."""
OWNED: Final[Mapping[str, Kind[Any]]] = {
    kind.plural: kind
    for kind in (
        SERVICE,
        SECRET,
        CONFIG_MAP,
        ROLE,
        ROLE_BINDING,
        SERVICE_ACCOUNT,
        NETWORK_POLICY,
        JOBRESOURCE,
    )
}


class Place(Protocol):
    """Where users and machines act: the world in virtual time, or a cluster."""

    @property
    def user(self) -> Verbs: ...

    def there(self, kind: Kind[Any], name: str) -> Manifest | None: ...

    def of_job(self, kind: Kind[Any], job: str) -> list[Manifest]:
        """The objects of a kind that have the label of a job."""

    def every(self, kind: Kind[Any]) -> list[Manifest]:
        """All objects of a kind."""

    def next_number(self, what: str) -> int:
        """The next one of a series, from 1."""

    def note(self, sentence: str) -> None: ...

    async def tries(self, sentence: str, ask: Any) -> None:
        """Await what a user asks; a refusal is noted."""

    def at(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        """Call something so many seconds later."""

    def exits(self, pod: Manifest, code: int) -> None:
        """The container of a pod ends."""

    def cordon(self, machine: str, on: bool) -> None: ...

    def lose(self, machine: str) -> None: ...

    def find(self, machine: str) -> None: ...


@dataclass(frozen=True)
class Act:
    """One row; see the module."""

    name: str
    weight: int
    draw: Draw
    do: Deed


def one_of(chance: Random, jobs: Jobs) -> str:
    return chance.choice(sorted(jobs))


# users


def draw_job(chance: Random, jobs: Jobs) -> Given:
    unit = 2 if chance.random() < 0.1 else 1
    least = unit * chance.randint(1, 2)
    drawn: dict[str, Value] = {
        "job": f"{'abc'[len(jobs) % 3]}",
        "strategy": chance.choice(("Local", "Local", "Allreduce")),
        "workers": least + unit * chance.randint(0, 2),
        "least": least,
    }
    more: dict[str, tuple[float, Callable[[], Value]]] = {
        "most": (0.4, lambda: least + unit * chance.randint(2, 4)),
        "unit": (1.0 if unit > 1 else 0.0, lambda: unit),
        "seconds": (0.4, lambda: chance.choice((3, 10, 20))),
        "exit": (0.15, lambda: chance.choice((1, 3))),
        "policy": (0.3, lambda: chance.choice(("Never", "OnFailure", "Always", "ExitCode"))),
        "restarts": (0.3, lambda: chance.randint(0, 2)),
        "clean": (0.3, lambda: chance.choice(("All", "None", "Running"))),
        "ttl": (0.15, lambda: chance.choice((0, 10))),
        "deadline": (0.1, lambda: chance.choice((5, 30))),
        "queue": (0.15, lambda: chance.choice("ab")),
        "history": (0.1, lambda: chance.choice((0, 1))),
        "mode": (0.2, lambda: chance.choice(("single-job", "single-job", "cluster"))),
        "manager": (0.03, lambda: "kueue.x-k8s.io/multikueue"),
        "trains": (0.3 if drawn["strategy"] != "Local" else 0.0, lambda: "yes"),
    }
    drawn |= {name: make() for name, (share, make) in more.items() if chance.random() < share}
    if drawn.get("policy") == "Always":  # it would run again for ever
        drawn.pop("seconds", None)
    return drawn


async def submit(world: Place, **given: Value) -> None:
    await world.tries(f"submit {given}", world.user.create(ELASTICJOB, manifest(**given)))


def manifest(**given: Any) -> Manifest:
    """Return the ElasticJob of the fields of a line."""
    made = job(
        given["job"],
        given.get("queue", ""),
        given["workers"],
        given["least"],
        given.get("most"),
        unit=given.get("unit", 1),
        master=given.get("strategy") != "Local",
    )
    spec, worker = made["spec"], made["spec"]["replicaSpecs"]["worker"]
    container = worker["template"]["spec"]["containers"][0]
    env = {"SECONDS": given.get("seconds"), "EXIT": given.get("exit")}
    if named := [{"name": name, "value": str(value)} for name, value in env.items() if value is not None]:
        container["env"] = named
    worker |= {"restartPolicy": given["policy"]} if "policy" in given else {}
    worker |= {"restartCount": given["restarts"]} if "restarts" in given else {}
    names = {
        "clean": "cleanPodPolicy",
        "ttl": "ttlSecondsAfterFinished",
        "deadline": "activeDeadlineSeconds",
        "history": "scalePlanHistoryLimit",
    }
    if policy := {names[name]: given[name] for name in names if name in given}:
        spec["runPolicy"] = policy
    spec |= {"optimizeMode": given["mode"]} if "mode" in given else {}
    spec |= {"managedBy": given["manager"]} if "manager" in given else {}
    if "trains" in given:
        made["metadata"]["annotations"] = {"simulation/trains": given["trains"]}
    return made


async def scale(world: Place, job: str, workers: int) -> None:
    patch = {"spec": {"replicas": workers}}
    asked = world.user.merge_patch(ELASTICJOB.untyped(), job, patch, TEAM, subresource="scale")
    await world.tries(f"scale {job} to {workers}", asked)


async def edit(world: Place, job: str, **fields: Value) -> None:
    """A user changes fields of a job, or of its role worker."""
    if (found := world.there(ELASTICJOB, job)) is None:
        return
    patch: Manifest = {}
    for name in fields.keys() & OF_A_JOB.keys():
        patch |= OF_A_JOB[name](fields[name])
    worker: Manifest = {OF_A_ROLE[name]: fields[name] for name in fields.keys() & OF_A_ROLE.keys()}
    if "image" in fields:
        template = found["spec"]["replicaSpecs"]["worker"]["template"]
        [main] = template["spec"]["containers"]
        containers = [{**main, "image": fields["image"]}]
        worker["template"] = {**template, "spec": {**template["spec"], "containers": containers}}
    patch |= {"replicaSpecs": {"worker": worker}} if worker else {}
    asked = world.user.merge_patch(ELASTICJOB, job, {"spec": patch}, TEAM)
    await world.tries(f"edit {job} {fields}", asked)


async def remake(world: Place, job: str, **fields: Value) -> None:
    """A user suspends a job, changes what its nodes are made from, and resumes it, faster than they leave."""
    await suspend(world, job, "yes")
    await edit(world, job, **fields)
    await suspend(world, job, "no")


async def suspend(world: Place, job: str, on: str) -> None:
    patch = {"spec": {"suspend": on == "yes"}}
    await world.tries(f"suspend {job}: {on}", world.user.merge_patch(ELASTICJOB, job, patch, TEAM))


async def delete(world: Place, job: str) -> None:
    await world.tries(f"delete {job}", world.user.delete(ELASTICJOB, job, TEAM))


async def again(world: Place, job: str, **given: Value) -> None:
    """Delete a job, and make another one of its name at once."""
    await delete(world, job)
    await submit(world, job=job, **given)


async def plan(world: Place, job: str, workers: int, manual: str, cpu: int = 0) -> None:
    """An optimizer, or a user, writes a ScalePlan."""
    size: Manifest = {"replicas": workers} | ({"resource": {"cpu": str(cpu)}} if cpu else {})
    name = f"{job}-plan-{world.next_number(f'plan {job}')}"
    kind = "manual" if manual == "yes" else "auto"
    about = {
        "name": name,
        "namespace": TEAM,
        "labels": {LABEL_JOB: job, "elasticjob.dlrover/scale-type": kind},
    }
    spec = {"ownerJob": job, "manualScaling": manual == "yes", "replicaResourceSpecs": {"worker": size}}
    made = world.user.create(SCALEPLAN, {"metadata": about, "spec": spec})
    await world.tries(f"plan {workers} workers for {job}", made)


async def edit_plan(world: Place, job: str, workers: int) -> None:
    """Somebody changes the newest plan of a job."""
    if every := world.of_job(SCALEPLAN, job):
        name = every[-1]["metadata"]["name"]
        patch = {"spec": {"replicaResourceSpecs": {"worker": {"replicas": workers}}}}
        await world.tries(f"edit plan {name}", world.user.merge_patch(SCALEPLAN, name, patch, TEAM))


async def enqueue(world: Place, kind: str, name: str, queue: str) -> None:
    """A user labels a job with another queue."""
    of: Kind[Any] = TRAININGJOB if kind == "training" else ELASTICJOB
    patch = {"metadata": {"labels": {QUEUE_NAME: queue}}}
    await world.tries(f"put {name} into queue {queue}", world.user.merge_patch(of, name, patch, TEAM))


async def autoscale(world: Place, job: str, workers: int) -> None:
    """An autoscaler writes the scale subresource of the JobResource."""
    patch = {"spec": {"replicas": workers}}
    asked = world.user.merge_patch(JOBRESOURCE.untyped(), job, patch, TEAM, subresource="scale")
    await world.tries(f"autoscale {job} to {workers}", asked)


async def take_away(world: Place, job: str, kind: str, only: str = "") -> None:
    """Somebody deletes objects that the operator has made, or one of a kind."""
    of = OWNED[kind]
    every = world.of_job(of, job) or filter(None, (world.there(of, job),))
    for name in (name for name in map(name_of, every) if name == (only or name)):
        await world.tries(f"delete {kind} {name}", world.user.delete(of, name, TEAM))


async def squat(world: Place, job: str, kind: str) -> None:
    """Somebody else has an object of a name that the operator would use."""
    name = {"pods": f"{job}-worker-1", "services": job, "jobresources": job}.get(kind, job)
    about = {"name": name, "namespace": TEAM, "labels": {"foreign": "yes"}}
    spec = (
        {"containers": [{"name": "main", "image": "none"}]} if kind == "pods" else {"ports": [{"port": 80}]}
    )
    of = POD if kind == "pods" else SERVICE
    await world.tries(f"another's {kind} {name}", world.user.create(of, {"metadata": about, "spec": spec}))


# other programs


def _lasting(given: Given) -> Given:
    """A job that is not deleted when it is over: git would bring it back for ever."""
    return {name: value for name, value in given.items() if name != "ttl"}


async def brain(world: World) -> None:
    """Brain is installed."""
    if world.brain is None:
        world.records = world.records or await records()
        world.start_brain()


async def hpa(world: World, job: str, least: int, most: int) -> None:
    """A HorizontalPodAutoscaler of the JobResource."""
    if all(each.key.name != job for each in world.looks if isinstance(each, HPA)):
        chance, key = world.drawn("hpa", job), Key(TEAM, job)
        look = HPA(world.connection("hpa"), world.clock, chance, JOBRESOURCE, key, least, most)
        world.looks.append(look)
        look.start()


async def gitops(world: World, **given: Value) -> None:
    """Argo CD applies a job from git, and heals it."""
    found = next((each for each in world.looks if isinstance(each, GitOps)), None)
    look = found or GitOps(world.connection("argo"), world.clock)
    look.commit(ELASTICJOB, manifest(**given))
    if found is None:
        world.looks.append(look)
        look.start()


async def train(world: Place, name: str, least: int, most: int, queue: str = "") -> None:
    """A TrainingJob of PaddlePaddle."""
    made = cluster.training(name, least, most)
    made["metadata"] |= {"labels": {QUEUE_NAME: queue}} if queue else {}
    await world.tries(f"TrainingJob {name}", world.user.create(TRAININGJOB, made))


async def retrain(world: Place, name: str, least: int, most: int) -> None:
    """A user changes the bounds of a TrainingJob."""
    patch = {"spec": {"trainer": {"min-instance": least, "max-instance": most}}}
    await world.tries(f"edit TrainingJob {name}", world.user.merge_patch(TRAININGJOB, name, patch, TEAM))


async def dijob(world: Place, name: str, queue: str = "", clean: str = "Running") -> None:
    made = cluster.dijob(name, queue)
    made["spec"]["cleanPodPolicy"] = clean
    await world.tries(f"DIJob {name}", world.user.create(DIJOB, made))


async def again_dijob(world: Place, name: str, queue: str = "", clean: str = "Running") -> None:
    """Delete a DIJob, and make another one of its name at once."""
    await remove(world, "dijob", name)
    await dijob(world, name, queue, clean)


async def finish(world: Place, name: str, code: int) -> None:
    """The coordinator of a DIJob ends."""
    found = world.there(POD, coordinator(name))
    if found and found["status"]["phase"] == "Running" and world.there(NODE, found["spec"]["nodeName"]):
        world.exits(found, code)


async def players(world: World, name: str, many: int) -> None:
    """The coordinator of a DIJob asks for collectors."""
    world.add_players(name, many)


async def delete_players(world: World, name: str) -> None:
    """Somebody deletes the collectors of a DIJob."""
    for each in world.players():
        if each["metadata"]["name"].startswith(f"{name}-"):
            await world.tries(
                f"delete a collector of {name}", world.user.delete(POD, each["metadata"]["name"], TEAM)
            )


async def halve(world: World, on: str) -> None:
    """A webhook of others halves what new pods ask for."""
    world.server.halves = on == "yes"


async def remove(world: Place, kind: str, name: str) -> None:
    """A user deletes a TrainingJob or a DIJob."""
    of: Kind[Any] = TRAININGJOB if kind == "training" else DIJOB
    await world.tries(f"delete {kind} {name}", world.user.delete(of, name, TEAM))


# machines and pods


def _pods(world: Place, job: str, index: int) -> list[Manifest]:
    """The pods of a worker, by its index."""
    place = {LABEL_ROLE: "worker", LABEL_INDEX: str(index)}
    return [p for p in world.of_job(POD, job) if place.items() <= p["metadata"]["labels"].items()]


async def end_pod(world: Place, job: str, index: int, code: int) -> None:
    for each in _pods(world, job, index):
        if each["status"]["phase"] == "Running" and world.there(NODE, each["spec"]["nodeName"]):
            world.note(f"--- {each['metadata']['name']} ends with {code}")
            world.exits(each, code)


async def delete_pod(world: Place, job: str, index: int) -> None:
    for each in _pods(world, job, index):
        name = each["metadata"]["name"]
        await world.tries(f"delete pod {name}", world.user.delete(POD, name, TEAM))


async def copy_pod(world: Place, job: str) -> None:
    """Somebody makes a pod of their own from one of a job or DIJob, labels and all."""
    if every := [each for each in world.every(POD) if name_of(each).startswith(f"{job}-")]:
        last = max(every, key=name_of)
        name, labels = f"{name_of(last)}-copy", {**labels_of(last), "foreign": "yes"}
        about = {"name": name, "namespace": TEAM, "labels": labels}
        spec = {"containers": [{"name": "main", "image": "none"}]}
        await world.tries(f"copy pod {name}", world.user.create(POD, {"metadata": about, "spec": spec}))


async def lose(world: Place, machine: str, seconds: float) -> None:
    """A machine is gone, and comes back without its pods."""
    world.note(f"--- machine {machine} is lost")
    world.lose(machine)
    world.at(seconds, world.find, machine)


async def stall(world: World, job: str, seconds: float) -> None:
    """The workers of a job make no step for so long: they compile, or hang where no master sees it."""
    world.stalls[job] = world.time + seconds


async def cordon(world: Place, machine: str, on: str) -> None:
    world.cordon(machine, on == "yes")


# queues


async def come(world: World, name: str, queue: str, cpu: int, priority: int) -> None:
    world.come(name, queue, cpu, priority)


async def go(world: World, name: str) -> None:
    world.go(name)


def _of_a_job(draw: Callable[[Random], Given]) -> Draw:
    return lambda chance, jobs: {"job": one_of(chance, jobs), **draw(chance)}


def _in_queue(draw: Callable[[Random], Given]) -> Draw:
    """Drawn only where a job is in a queue."""
    return lambda chance, jobs: draw(chance) if any("queue" in given for given in jobs.values()) else None


ACTS: Final = (
    Act("submit", 2, draw_job, submit),
    Act("scale", 5, _of_a_job(lambda c: {"workers": c.randint(0, 6)}), scale),
    Act(
        "edit",
        3,
        _of_a_job(lambda c: {c.choice(("workers", "least", "most", "restarts")): c.randint(1, 5)}),
        edit,
    ),
    Act("edit", 1, _of_a_job(lambda c: {"image": c.choice(("v2", "v3"))}), edit),
    Act(
        "edit",
        2,
        _of_a_job(
            lambda c: c.choice(({"network": "yes"}, {"network": "no"}, {"strategy": "Local"}, {"env": "x"}))
        ),
        edit,
    ),
    Act("remake", 1, _of_a_job(lambda c: c.choice(({"image": "v2"}, {"env": "y"}))), remake),
    Act("suspend", 3, _of_a_job(lambda c: {"on": c.choice(("yes", "yes", "no"))}), suspend),
    Act("suspend", 2, _of_a_job(lambda c: {"on": "no"}), suspend),
    Act("delete", 1, _of_a_job(lambda c: {}), delete),
    Act("again", 1, lambda c, jobs: {**draw_job(c, jobs), "job": one_of(c, jobs)}, again),
    Act(
        "plan", 4, _of_a_job(lambda c: {"workers": c.randint(1, 6), "manual": c.choice(("yes", "no"))}), plan
    ),
    Act(
        "plan",
        1,
        _of_a_job(
            lambda c: {"workers": c.randint(1, 4), "manual": c.choice(("yes", "no")), "cpu": c.randint(1, 3)}
        ),
        plan,
    ),
    Act("edit-plan", 1, _of_a_job(lambda c: {"workers": c.randint(1, 5)}), edit_plan),
    Act("autoscale", 2, _of_a_job(lambda c: {"workers": c.randint(1, 6)}), autoscale),
    Act(
        "brain",
        1,
        lambda c, jobs: {} if any(j.get("mode") == "cluster" for j in jobs.values()) else None,
        brain,
    ),
    Act("hpa", 1, _of_a_job(lambda c: {"least": 1, "most": c.randint(2, 6)}), hpa),
    Act("gitops", 1, lambda c, jobs: {**_lasting(draw_job(c, jobs)), "job": "g"}, gitops),
    Act("train", 1, lambda c, jobs: {"name": one_of(c, jobs), "least": 1, "most": 2}, train),
    Act("train", 1, lambda c, jobs: {"name": "t", "least": c.randint(1, 2), "most": c.randint(2, 4)}, train),
    Act("retrain", 1, lambda c, jobs: {"name": "t", "least": 1, "most": c.randint(2, 4)}, retrain),
    Act("enqueue", 1, lambda c, jobs: {"kind": "training", "name": "t", "queue": c.choice("ab")}, enqueue),
    Act(
        "enqueue",
        1,
        lambda c, jobs: {"kind": "job", "name": one_of(c, jobs), "queue": c.choice("ab")},
        enqueue,
    ),
    Act(
        "dijob",
        1,
        lambda c, jobs: (
            {"name": "d", "clean": c.choice(("Running", "All", "None"))}
            | ({"queue": c.choice("ab")} if c.random() < 0.5 else {})
        ),
        dijob,
    ),
    Act("again-dijob", 1, lambda c, jobs: {"name": "d"}, again_dijob),
    Act("finish", 1, lambda c, jobs: {"name": "d", "code": c.choice((0, 1))}, finish),
    Act("players", 1, lambda c, jobs: {"name": "d", "many": c.randint(1, 3)}, players),
    Act("delete-players", 1, lambda c, jobs: {"name": "d"}, delete_players),
    Act("halve", 1, lambda c, jobs: {"on": c.choice(("yes", "yes", "no"))}, halve),
    Act(
        "remove",
        1,
        lambda c, jobs: c.choice(({"kind": "training", "name": "t"}, {"kind": "dijob", "name": "d"})),
        remove,
    ),
    Act(
        "take-away",
        1,
        lambda c, jobs: {"job": (job := one_of(c, jobs)), "kind": "services", "only": f"{job}-master"},
        take_away,
    ),
    Act("take-away", 2, _of_a_job(lambda c: {"kind": c.choice(sorted(OWNED))}), take_away),
    Act("squat", 1, _of_a_job(lambda c: {"kind": c.choice(("pods", "services"))}), squat),
    Act("end-pod", 5, _of_a_job(lambda c: {"index": c.randint(0, 3), "code": c.choice(CODES)}), end_pod),
    Act("delete-pod", 3, _of_a_job(lambda c: {"index": c.randint(0, 3)}), delete_pod),
    Act("copy-pod", 1, lambda c, jobs: {"job": c.choice((one_of(c, jobs), "d"))}, copy_pod),
    Act("lose", 2, lambda c, jobs: {"machine": c.choice(MACHINES), "seconds": c.choice((0.5, 5, 30))}, lose),
    Act("cordon", 1, lambda c, jobs: {"machine": c.choice(MACHINES), "on": c.choice(("yes", "no"))}, cordon),
    Act(
        "come",
        3,
        _in_queue(
            lambda c: {
                "name": c.choice("fgh"),
                "queue": c.choice("ab"),
                "cpu": c.randint(1, 4),
                "priority": c.choice((-5, 0, 5)),
            }
        ),
        come,
    ),
    Act("stall", 0, _of_a_job(lambda c: {"seconds": 60}), stall),
    Act("go", 2, _in_queue(lambda c: {"name": c.choice("fgh")}), go),
)
