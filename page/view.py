"""What people see of the cluster and of one job, as JSON. Pure.

Times are seconds since 1970, texts are cut, and each list has a bound: `more` says how
many are left out. Nothing here is HTML: the page shows every string as text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import isnan
from typing import Any, Final

from elasticjob.api.resources import MalformedQuantity, Resources
from elasticjob.api.roles import MASTER_ALIAS
from elasticjob.api.troubles.facts import JobFacts
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container, main_status
from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob, Phase
from elasticjob.api.v1alpha1.last_words import last_error
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Node, Pod
from elasticjob.page.seen import Cluster, Fleet, Master, One, Past, Standing
from elasticjob.page.series import Point, json_value
from elasticjob.page.status import NodeStatus, Status
from elasticjob.page.timeline import happened
from elasticjob.page.troubles import troubles, urgency, worst
from elasticjob.page.words import LONGEST, View, cut, natural, seconds_of

MOST_JOBS: Final = 1000
MOST_PODS: Final = 500
MOST_ROUNDS: Final = 200
MOST_NODES: Final = 200
MOST_POINTS: Final = 600
SPARK: Final = 32
"""Points of the small curve beside each job."""
DEVICES: Final = "/"
"""Names of extended resources have one."""
PRODUCTIVE: Final = "productive"


# the cluster


def fleet(seen: Fleet, now: datetime) -> View:
    """Return all jobs, those in trouble first, what they are together, and the nodes."""
    pods = _by_job(seen.pods)
    rated = [(worst(JobFacts(job, pods[job.key]), now), job) for job in seen.jobs]
    rated.sort(key=lambda each: (urgency(each[0]), *_order(each[1])))
    rows = [
        {**_row(job, seen.series.get(job.metadata.uid, ())), "trouble": trouble}
        for trouble, job in rated[:MOST_JOBS]
    ]
    gone = _gone(seen.past, {job.metadata.uid for job in seen.jobs})
    return {
        **_cluster(seen.cluster, now),
        "jobs": [*rows, *gone],
        "more": max(0, len(rated) - MOST_JOBS),
        "sums": {**_sums(seen.jobs), "trouble": sum(trouble is not None for trouble, _ in rated)},
        "spent": _spent(seen.jobs),
        "nodes": _nodes(seen),
    }


def _by_job(pods: Sequence[Pod]) -> defaultdict[Key, list[Pod]]:
    found: defaultdict[Key, list[Pod]] = defaultdict(list)
    for pod in pods:
        found[Key(pod.metadata.namespace, pod.metadata.labels.get(LABEL_JOB, ""))].append(pod)
    return found


def _order(job: ElasticJob) -> tuple[Any, ...]:
    """Jobs that go on first, then the newest."""
    began = job.metadata.creation_timestamp
    over = job.status.phase in FINISHED
    return over, -(began.timestamp() if began else 0.0), job.metadata.namespace, natural(job.metadata.name)


def _row(job: ElasticJob, series: Sequence[Point]) -> View:
    training, over = job.status.training, job.status.phase in FINISHED
    return {
        **_names(job),
        **_size(job),
        "steps": (training and not over and training.steps_per_second) or None,
        "samples": (training and not over and training.samples_per_second) or None,
        "goodput": training and training.goodput,
        "progress": training and training.progress,
        "eta": seconds_of(training.eta) if training and not over else None,
        "step": training and training.step,
        "spark": _spark(series),
    }


def _names(job: ElasticJob) -> View:
    status = job.status
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "phase": status.phase.value if status.phase else Phase.CREATED.value,
        "reason": cut(status.reason or ""),
        "message": cut(_why(job)),
        "strategy": job.spec.distribution_strategy.value,
        "mode": job.spec.optimize_mode.value,
        "restarts": status.restarts or 0,
        "began": seconds_of(status.start_time or job.metadata.creation_timestamp),
        "ended": seconds_of(status.completion_time),
    }


def _size(job: ElasticJob) -> View:
    bounds, training = job.spec.world, job.status.training
    statuses = job.status.replica_statuses
    return {
        "workers": job.status.workers or "",
        "active": sum(each.active for each in statuses.values()),
        "desired": sum(each.desired for each in statuses.values()),
        "least": bounds.least,
        "most": bounds.most,
        "world": training and training.world_size,
    }


def _why(job: ElasticJob) -> str:
    """Return the sentence behind the reason, else why nodes do not run, else of the newest that holds."""
    told = [each for each in job.status.conditions if each.message]
    named = [each for each in told if job.status.reason and each.reason == job.status.reason]
    stopped = [each for each in told if each.type == "Running" and each.status == "False"]
    holds = sorted(
        (each for each in told if each.status == "True"),
        key=lambda each: str(each.last_transition_time or ""),
    )
    chosen = named or (stopped if job.status.phase not in FINISHED else []) or holds
    return chosen[-1].message if chosen else ""


def _spark(series: Sequence[Point]) -> list[float | None]:
    """Return the last speeds, to three digits."""
    points = list(series)[-SPARK:]
    return [_digits(json_value(_speed(point))) for point in points]


def _speed(point: Point) -> float:
    return point.samples if not isnan(point.samples) and point.samples else point.steps


def _gone(past: Sequence[Mapping[str, Any]], here: set[str]) -> list[View]:
    """Return the jobs that only Brain knows, as rows."""
    return [_gone_row(job) for job in past if job["uid"] not in here][:MOST_JOBS]


def _gone_row(job: Mapping[str, Any]) -> View:
    status = job["status"]
    return {
        **{name: cut(job[name]) for name in ("namespace", "name", "uid", "phase", "strategy", "mode")},
        "reason": "",
        "message": "",
        "restarts": None,
        "began": seconds_of(job["began"]),
        "ended": seconds_of(job["ended"]),
        "deleted": True,
        "workers": "",
        "world": status.get("worldSize"),
        "goodput": status.get("goodput"),
        "progress": status.get("progress"),
        "step": status.get("step"),
        "spark": [],
    }


def _sums(jobs: Sequence[ElasticJob]) -> View:
    going = [job for job in jobs if job.status.phase not in FINISHED]
    told = [job.status.training for job in going if job.status.training]
    return {
        "phases": Counter((job.status.phase or Phase.CREATED).value for job in jobs),
        "going": len(going),
        "samples": sum(each.samples_per_second or 0.0 for each in told),
        "world": sum(each.world_size or 0 for each in told),
        "active": sum(each.active for job in going for each in job.status.replica_statuses.values()),
        "desired": sum(each.desired for job in going for each in job.status.replica_statuses.values()),
        "goodput": _mean([each.goodput for each in told if each.goodput is not None]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _spent(jobs: Iterable[ElasticJob]) -> View:
    """Return the workers' lost seconds of all jobs, by cause."""
    lost: defaultdict[str, float] = defaultdict(float)
    for job in jobs:
        for cause, seconds in (job.status.training.badput_seconds if job.status.training else {}).items():
            lost[cut(cause)] += seconds
    return dict(sorted(lost.items(), key=lambda each: -each[1]))


def _nodes(seen: Fleet) -> View:
    taken: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in seen.pods:
        if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            taken[pod.spec.node_name].append(pod)
    rows = [_node(node, taken[node.metadata.name]) for node in seen.nodes]
    rows.sort(key=lambda row: (row["ready"], natural(row["name"])))
    return {
        "away": cut(seen.cluster.nodes_away),
        "rows": rows[:MOST_NODES],
        "ready": sum(row["ready"] for row in rows),
        "more": max(0, len(rows) - MOST_NODES),
    }


def _node(node: Node, pods: Sequence[Pod]) -> View:
    has = _amounts(node.status.allocatable)
    used: Counter[str] = Counter()
    for pod in pods:
        for container in pod.spec.containers:
            used.update(_amounts(container.resources.requests))
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    rooms = ["cpu", "memory", *sorted(name for name in has if DEVICES in name and "hugepages" not in name)]
    return {
        "name": node.metadata.name,
        "ready": ready and not node.spec.unschedulable,
        "state": "Ready" if ready and not node.spec.unschedulable else "Cordoned" if ready else "NotReady",
        "pods": len(pods),
        "rooms": [
            {"name": name, "used": used.get(name, 0.0), "has": has[name]} for name in rooms if name in has
        ],
    }


def _amounts(given: Mapping[str, Any]) -> Mapping[str, float]:
    return _numbers(tuple((name, str(amount)) for name, amount in given.items()))


@lru_cache(4096)
def _numbers(given: tuple[tuple[str, str], ...]) -> Mapping[str, float]:
    """Return amounts as numbers; a cluster's own words for something else are left out."""
    try:
        parsed = Resources.parse(dict(given))
    except MalformedQuantity:
        return {}
    return {name: float(amount.value) for name, amount in parsed.items()}


# a job


def one(seen: One, now: datetime) -> View:
    """Return one job."""
    job, past = seen.job, seen.past
    found = _cluster(seen.cluster, now)
    if job is None and past is None:
        return {**found, "namespace": seen.namespace, "name": seen.name, "missing": True}
    head = _head(job, seen.master.status) if job else _gone_row(past.job if past else {})
    return {
        **found,
        **head,
        "troubles": troubles(JobFacts(job, seen.pods, seen.plans, seen.events, seen.nodes), now)
        if job
        else [],
        "master": _master(seen.master, job, now),
        "spent": _time_spent(job, seen.master.status),
        "rounds": _rounds(seen.master.status),
        "series": _series(_join(past, seen.series)),
        "happened": happened(seen),
        "pods": _pods(seen),
        "pastPods": _past_pods(past, {pod.metadata.uid for pod in seen.pods}),
        "eventsAway": cut(seen.events_away),
        "cost": past.cost if past else "",
    }


def _head(job: ElasticJob, status: Status | None) -> View:
    """Return what stands above all: the master's word where it has one, else the object's."""
    training, over = job.status.training, job.status.phase in FINISHED
    done = status.progress if status else None
    steps = status.steps_per_second if status else training and training.steps_per_second
    samples = status.samples_per_second if status else training and training.samples_per_second
    steps, samples = (None, None) if over else (steps or None, samples or None)
    goodput = status.goodput_ratio if status else None
    slowest = [each.step_seconds for each in (status.nodes if status else ()) if each.step_seconds]
    return {
        **_names(job),
        **_size(job),
        **({"world": status.workers} if status and status.workers and not over else {}),
        "generation": job.metadata.generation,
        "sentence": cut(status.sentence) if status else "",
        "steps": steps,
        "samples": samples,
        "stepSeconds": (1 / steps if steps else max(slowest, default=None)) if not over else None,
        "goodput": goodput if goodput is not None else training and training.goodput,
        "step": done.step if done else training and training.step,
        "totalSteps": (done.total_steps or None) if done else None,
        "epoch": done.epoch if done else training and training.epoch,
        "loss": done.loss if done else None,
        "progress": training and training.progress,
        "eta": seconds_of(training.eta) if training and not over else None,
        "standstill": status.standstill if status else None,
        "round": status.round if status else training and training.round,
        "checkpoint": _checkpoint(status),
        "roles": {role: _role(job, role) for role in job.spec.roles},
    }


def _role(job: ElasticJob, role: str) -> View:
    bounds, status = job.spec.range_of(role), job.status.replica_statuses.get(role)
    return {
        "least": bounds.least,
        "most": bounds.most,
        "active": status.active if status else 0,
        "desired": status.desired if status else 0,
    }


def _checkpoint(status: Status | None) -> View | None:
    if status is None or not (status.checkpoint.stored or status.checkpoint.in_memory):
        return None
    kept = status.checkpoint
    return {
        "stored": kept.stored,
        "memory": kept.in_memory,
        "seconds": kept.seconds,
        "error": cut(kept.error),
    }


def _master(master: Master, job: ElasticJob | None, now: datetime) -> View:
    return {
        "expected": bool(job and job.spec.needs_master and job.status.phase not in FINISHED),
        "heard": seconds_of(master.heard),
        "away": _standing(master.away, now),
    }


def _time_spent(job: ElasticJob | None, status: Status | None) -> View:
    """Return the workers' seconds by cause, the productive ones under their own name."""
    if status and (status.productive_seconds or status.badput_seconds):
        found = {PRODUCTIVE: status.productive_seconds, **status.badput_seconds}
        return {cut(cause): seconds for cause, seconds in found.items() if seconds > 0}
    training = job.status.training if job else None
    if training is None:
        return {}
    lost = {cause: float(seconds) for cause, seconds in training.badput_seconds.items() if seconds > 0}
    share = training.goodput
    productive = sum(lost.values()) * share / (1 - share) if share and share < 1 else 0.0
    return {**({PRODUCTIVE: productive} if productive else {}), **{cut(k): v for k, v in lost.items()}}


def _rounds(status: Status | None) -> list[View]:
    """Return the sizes of the world, oldest first, and how long training stood still before each."""
    return [
        {"at": seconds_of(each.formed), "workers": each.workers, "standstill": each.standstill}
        for each in (status.rounds[-MOST_ROUNDS:] if status else ())
    ]


def _join(past: Past | None, live: Sequence[Point]) -> list[Point]:
    """Return Brain's points, and then those that this page has taken itself."""
    points = list(live)
    first = points[0].at if points else float("inf")
    before = [point for point in (past.points if past else ()) if point.at < first]
    return [*before, *points][-MOST_POINTS:]


def _series(points: Sequence[Point]) -> View:
    """Return the columns of a chart."""
    columns = zip(*points, strict=True) if points else ((),) * len(Point._fields)
    return {
        name: [_digits(json_value(value), 10 if name == "at" else 4) for value in column]
        for name, column in zip(Point._fields, columns, strict=True)
    } | ({"at": [round(point.at, 1) for point in points]})


def _pods(seen: One) -> View:
    told = {node.pod or node.name: node for node in (seen.master.status.nodes if seen.master.status else ())}
    pods = sorted(seen.pods, key=_place)
    rows = [_pod(pod, told.get(pod.metadata.name)) for pod in pods[:MOST_PODS]]
    return {"rows": rows, "more": max(0, len(pods) - MOST_PODS)}


def _place(pod: Pod) -> tuple[bool, str, int, str]:
    """The master first, then roles by name and index."""
    labels = pod.metadata.labels
    role, index = labels.get(LABEL_ROLE, ""), labels.get(LABEL_INDEX, "")
    return role != MASTER_ALIAS, role, int(index) if index.isdecimal() else 0, pod.metadata.name


def _pod(pod: Pod, told: NodeStatus | None) -> View:
    main, status = main_container(pod), main_status(pod)
    limits = _amounts({**main.resources.requests, **main.resources.limits}) if main else {}
    usage = told.usage if told else None
    return {
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "role": cut(pod.metadata.labels.get(LABEL_ROLE, "")),
        "phase": "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase or "Pending",
        "state": cut(told.state) if told else "",
        "reason": cut(_trouble(pod)),
        "node": pod.spec.node_name,
        "restarts": sum(each.restart_count for each in pod.status.container_statuses),
        "began": seconds_of(pod.metadata.creation_timestamp),
        "ready": bool(status and status.ready),
        "containers": [each.name for each in pod.spec.containers][:16],
        "memory": usage.memory if usage else None,
        "peak": told.memory_peak if told else None,
        "memoryLimit": limits.get("memory"),
        "cpu": usage.cpu if usage else None,
        "cpuLimit": limits.get("cpu"),
        "gpu": usage.gpus.utilization if usage and usage.gpus else None,
        "stepSeconds": told.step_seconds if told else None,
        "samples": told.samples_per_second if told else None,
        "heard": told.heard if told else None,
        "failures": told.failures if told else 0,
        "failure": cut(told.failure or told.excluded) if told else "",
    }


def _trouble(pod: Pod) -> str:
    """Return why a pod does not run, or how it ended, in a few words."""
    status = main_status(pod)
    state = status.state if status else None
    if state and state.terminated and state.terminated.exit_code:
        end = state.terminated
        why = last_error(end.message)
        return f"{end.reason or 'Error'}: exit code {end.exit_code}" + (f", {why}" if why else "")
    if state and state.waiting and state.waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
        return ": ".join(filter(None, (state.waiting.reason, state.waiting.message)))
    scheduled = (
        each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False"
    )
    unplaced = next((each for each in scheduled if each.message), None)
    if unplaced:
        return f"{unplaced.reason}: {unplaced.message}"
    return pod.status.message or pod.status.reason


def silence(pod: Pod, container: str) -> str:
    """Return why a container has no log yet; "" if it may have one."""
    why = _trouble(pod)
    if not pod.spec.node_name:
        return f"{pod.metadata.name} has no machine yet, and so no log{why and f': {why}'}"
    status = next((each for each in pod.status.container_statuses if each.name == container), None)
    waits = status is None or (status.state.waiting is not None and not status.restart_count)
    if pod.status.phase != "Pending" or not waits:
        return ""
    return f"{pod.metadata.name} has not started, and has no log{why and f': {why}'}"


def _past_pods(past: Past | None, here: set[str]) -> list[View]:
    """Return the pods that are gone and that Brain remembers, with their last lines, newest first."""
    found = [pod for pod in (past.pods if past else ()) if pod["uid"] not in here]
    return [
        {
            **{name: cut(pod[name]) for name in ("name", "role", "phase", "reason")},
            "node": cut(pod["machine"]),
            "began": seconds_of(pod["began"]),
            "ended": seconds_of(pod["ended"]),
            "log": str(pod["log"])[-16 * LONGEST :],
        }
        for pod in found[::-1][:MOST_PODS]
    ]


# all pages


def _cluster(cluster: Cluster, now: datetime) -> View:
    return {
        "cluster": {
            "namespace": cluster.namespace,
            "server": cluster.server,
            "ready": cluster.ready,
            "api": _standing(cluster.api, now),
            "brain": _standing(cluster.brain, now) if cluster.brain else None,
        }
    }


def _standing(standing: Standing, now: datetime) -> View | None:
    """Return why something does not answer, and since when; None if it does."""
    if not standing.away:
        return None
    return {"why": cut(standing.away), "since": seconds_of(standing.since or now), "act": standing.act}


def _digits(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
