"""Decisions of di-server, one for each verb, from the observed state and the request. Pure.

POST replicas    creations      all that is asked for, or nothing
DELETE replicas  deletions      as many as there are, pending ones first
POST failed      replacements   another pod in the place of each that is reported

A decision that is no write is Refused, or Made: what an equal call has made before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from elasticjob.api import readings
from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.checks import problems
from elasticjob.api.diengine.dijob import DIJob
from elasticjob.api.diengine.gpus import Machine, TooManyPods
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import GPU
from elasticjob.controllers.diserver import orders
from elasticjob.controllers.diserver.asked import Amounts, Ask, Asked, Limits, Refusal, Report
from elasticjob.controllers.diserver.orders import Creation, Draw, Order
from elasticjob.controllers.diserver.seen import Pods, going_first
from elasticjob.kube.objects.views import Pod


@dataclass(frozen=True)
class Call:
    """The identity of a call that writes: `id` labels the pods that it makes, equal calls have one `digest`.

    `keyed`: the caller gave an Idempotency-Key.
    """

    id: str
    digest: str
    keyed: bool = False


@dataclass(frozen=True)
class Seen:
    """The job of a call, and what else its rule asks about.

    `machines` and `config` are read where `splits` says so. `starting` are the reported pods that only start.
    """

    pods: Pods
    caller: Pod
    call: Call
    random_suffix: Callable[[], str]
    config: AggregatorConfig | None = None
    machines: tuple[Machine, ...] = ()
    starting: frozenset[str] = frozenset()  # uids
    local_ports: bool = False

    @property
    def job(self) -> DIJob:
        """The job of the caller."""
        return self.pods.job

    @property
    def draw(self) -> Draw:
        """Names of new pods."""
        return Draw(self.job.metadata.name, self.random_suffix)


@dataclass(frozen=True)
class Creations:
    """Pods to make, all or none; `undo` are those of an equal call that was cut off, which go first."""

    orders: tuple[Order, ...]
    config: AggregatorConfig | None = None
    missing: str = ""
    undo: tuple[Pod, ...] = ()

    @property
    def size(self) -> int:
        """How many pods are made."""
        return sum(order.size for order in self.orders)


@dataclass(frozen=True)
class EarlierCall:
    """The pods of an equal call before, whose response was lost, or which had the same Idempotency-Key."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Deletions:
    """Replicas to delete, and the ddp pods of the aggregators among them."""

    collectors: tuple[Pod, ...]
    learners: tuple[Pod, ...]
    members: tuple[Pod, ...]


class Way(Enum):
    """How a pod is replaced."""

    KEPT = auto()  # it only starts, or is the replacement of the one that is reported
    BY_ANOTHER = auto()  # made before, by a call that was cut off: only the old one has to go
    UNDER_A_NEW_NAME = auto()
    UNDER_ITS_NAME = auto()  # the others of a learner know it, and its aggregator must not miss it
    WITH_ITS_MEMBERS = auto()  # an aggregator: its ddp pods know its name, and each other's


@dataclass(frozen=True)
class Replacement:
    """One pod and its successor: `name` of a pod to make, `order` of an aggregator, `new` if it is there."""

    way: Way
    old: Pod
    name: str = ""
    new: Pod | None = None
    order: Order | None = None
    members: tuple[Pod, ...] = ()


@dataclass(frozen=True)
class Replacements:
    """A replacement for each pod that is reported."""

    collectors: tuple[Replacement, ...]
    learners: tuple[Replacement, ...]
    config: AggregatorConfig | None = None


Decision = Creations | EarlierCall | Deletions | Replacements | Refusal
A = TypeVar("A", Ask, Report)


@dataclass(frozen=True)
class Question:
    """A request and its rule; `fresh`: the rule is about the API server's pods, not those of caches."""

    asked: Asked
    decide: Callable[[Seen, Limits], Decision]
    fresh: bool = False


@dataclass(frozen=True)
class Verb(Generic[A]):
    """How the calls of a verb are read and decided; `done` is the word for it in a response."""

    parse: Callable[[bytes, Limits], A]
    rule: Callable[[Seen, A, Limits], Decision]
    done: str
    fresh: bool = False

    def question(self, body: bytes, limits: Limits) -> Question:
        """Return what a body asks. Raises Refused."""
        asked = self.parse(body, limits)

        def decide(seen: Seen, limits: Limits) -> Decision:
            return self.rule(seen, asked, limits)

        return Question(asked, decide, self.fresh)


def splits(found: Pods, asked: Asked) -> bool:
    """Whether the GPUs of learners are split over pods: that needs the machines, and the AggregatorConfig."""
    if isinstance(asked, Ask):
        return asked.learners.gpus > 1 and asked.learners.replicas > 0
    reported = (found.by_name(name) for name in asked.learners)
    return any(pod is not None and pods.role_of(pod) is Role.AGGREGATOR for pod in reported)


def creations(seen: Seen, ask: Ask, limits: Limits) -> Creations | EarlierCall | Refusal:
    """Decide a POST of replicas."""
    if refused := next(_objections(seen, ask), None):
        return refused
    group = _made_before(seen)
    first = group[0].metadata.annotations if group else {}
    if seen.call.keyed and group and first.get(names.REQUEST_BODY) != seen.call.digest:
        return Refusal(409, "the Idempotency-Key was used for another body: use a new one")
    unanswered = any(names.UNANSWERED in pod.metadata.annotations for pod in group)
    partly = unanswered and len(group) < readings.number(first.get(names.REQUEST_PODS))
    if group and not partly:
        return EarlierCall(group)
    if splits(seen.pods, ask) and seen.config is None:
        return _no_config()
    wanted = _order(seen, ask, limits)
    if isinstance(wanted, Refusal):
        return wanted
    others = [pod for pod in seen.pods.pods if pods.role_of(pod) is not Role.COORDINATOR]
    there, size = len(others) - len(group), sum(each.size for each in wanted)
    if there + size > limits.per_job:
        what = f"a job has at most {limits.per_job} pods beside its coordinator"
        return Refusal(400, f"{what}: it has {there}, and asks for {size}; delete replicas, or ask for fewer")
    found = tuple(order for each in wanted for order in each.orders)
    return Creations(found, seen.config, wanted[1].missing, group)


def deletions(seen: Seen, ask: Ask, _: Limits) -> Deletions | Refusal:
    """Decide a DELETE of replicas."""
    if pods.role_of(seen.caller) is not Role.COORDINATOR:
        return not_of(seen.caller, Role.COORDINATOR)
    learners = tuple(going_first(seen.pods.learners)[: ask.learners.replicas])
    return Deletions(
        tuple(going_first(seen.pods.collectors)[: ask.collectors.replicas]),
        learners,
        tuple(pod for each in learners for pod in seen.pods.members(each)),
    )


def replacements(seen: Seen, report: Report, limits: Limits) -> Replacements | Refusal:
    """Decide a POST of failed replicas; all names are checked before anything is replaced."""
    match pods.role_of(seen.caller):
        case Role.COORDINATOR:
            known: Mapping[str, Sequence[Pod]] = {
                "collectors": seen.pods.collectors,
                "learners": seen.pods.learners,
            }
        case Role.AGGREGATOR:
            known = {"collectors": (), "learners": seen.pods.members(seen.caller)}
        case _:
            return not_of(seen.caller, Role.AGGREGATOR)
    found: dict[str, tuple[Replacement, ...]] = {}
    for role, reported in (("collectors", report.collectors), ("learners", report.learners)):
        decided = [_replacement(seen, name, known[role], limits) for name in reported]
        if refused := next((each for each in decided if isinstance(each, Refusal)), None):
            return refused
        found[role] = tuple(each for each in decided if isinstance(each, Replacement))
    return Replacements(found["collectors"], found["learners"], seen.config)


def _objections(seen: Seen, ask: Ask) -> Iterator[Refusal]:
    """Why a job gets no replicas."""
    job, name = seen.job, seen.job.metadata.name
    if pods.role_of(seen.caller) is not Role.COORDINATOR:
        yield not_of(seen.caller, Role.COORDINATOR)
    if job.status.phase is not None and job.status.phase.is_terminal:
        yield Refusal(400, f"DIJob {name} has ended: {job.status.phase}")
    for role, amounts in ((Role.COLLECTOR, ask.collectors), (Role.LEARNER, ask.learners)):
        if amounts.replicas and job.spec.template(role) is None:
            yield Refusal(400, f"DIJob {name} has no spec.{role}: add its template to the job")
    if problem := next(iter(problems(job)), None):
        yield Refusal(400, f"DIJob {name} cannot have pods: {problem}")


def _made_before(seen: Seen) -> tuple[Pod, ...]:
    """The pods of an equal call that was cut off, or has this key."""
    digest, call = seen.call.digest, seen.call
    firsts = [pod for pod in seen.pods.pods if pod.metadata.annotations.get(names.UNANSWERED) == digest]
    ids = {pod.metadata.labels.get(names.LABEL_REQUEST) for pod in firsts} | (
        {call.id} if call.keyed else set()
    )
    return tuple(
        pod for pod in seen.pods.pods if pod.metadata.labels.get(names.LABEL_REQUEST) in ids - {None}
    )


def _order(seen: Seen, ask: Ask, limits: Limits) -> tuple[Creation, Creation] | Refusal:
    try:
        found = orders.learners(
            ask.learners, seen.machines, seen.draw, most=limits.per_request, local_ports=seen.local_ports
        )
    except TooManyPods as error:
        what = f"{ask.learners.replicas} learners of {ask.learners.gpus} GPUs are {error.count} pods or more"
        return Refusal(400, f"{what}: one call may ask for {limits.per_request}; write fewer")
    return orders.collectors(ask.collectors, seen.draw), found


def _replacement(seen: Seen, name: str, candidates: Sequence[Pod], limits: Limits) -> Replacement | Refusal:
    old = next((pod for pod in candidates if pod.metadata.name == name), None)
    new = seen.pods.replacement(name)
    if old is None:
        if new is not None:
            return Replacement(Way.KEPT, new)
        if name == seen.pods.coordinator:
            return Refusal(400, f"{name} is the coordinator: it is made again by itself")
        return Refusal(404, f"{name} is not a replica of the caller")
    if new is not None:
        return Replacement(Way.BY_ANOTHER, old, new=new)
    if old.metadata.uid in seen.starting:
        return Replacement(Way.KEPT, old)
    members = seen.pods.members(old)
    match pods.role_of(old):
        case Role.DDP_LEARNER:
            return Replacement(Way.UNDER_ITS_NAME, old, name)
        case Role.AGGREGATOR if members:
            return _with_members(seen, old, members, limits)
        case role:
            return Replacement(Way.UNDER_A_NEW_NAME, old, seen.draw.name(role or Role.COLLECTOR))


def _with_members(seen: Seen, old: Pod, members: tuple[Pod, ...], limits: Limits) -> Replacement | Refusal:
    if seen.config is None:
        return _no_config()
    asked = {name: amount for name, amount in pods.asked_of(members[0]).items() if name != GPU}
    gpus = min(max(2, pods.world_of(members[0])), limits.gpus)
    amounts = Amounts(1, gpus, tuple(asked.items()))
    wanted = _order(seen, Ask("", seen.pods.coordinator, Amounts(), amounts), limits)
    if isinstance(wanted, Refusal):
        return wanted
    (order,) = wanted[1].orders
    return Replacement(Way.WITH_ITS_MEMBERS, old, order.name, order=order, members=members)


def not_of(pod: Pod, role: Role) -> Refusal:
    """Return why a call of a pod of another role is refused."""
    return Refusal(400, f"{pod.metadata.name} is not a pod of role {role}")


def _no_config() -> Refusal:
    what = "there is no AggregatorConfig in the namespace of the job, and none of the cluster"
    return Refusal(404, f"{what}: learners with several GPUs need it; create one")
