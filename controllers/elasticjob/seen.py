"""The input of a decision about an ElasticJob, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from elasticjob.api.readings import counts, decode, number
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource, JobResourceStatus
from elasticjob.api.v1alpha1.order import asked_in
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.elasticjob.master import Provision, verdict
from elasticjob.controllers.elasticjob.objects import made_from
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.nodes.machines import Largest
from elasticjob.controllers.nodes.relaunch import Life, Node, Policy, nodes
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.apis import gang_from
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.passes import rules
from elasticjob.controllers.passes.plan import Create
from elasticjob.kube.json import JsonReader
from elasticjob.sizing.exits import ExitReason

AMOUNTS: Final = JsonReader(dict[str, dict[str, str]])


@dataclass(frozen=True)
class Seen:
    """A job and its objects. `fresh_token` is for a job that has none yet."""

    job: ElasticJob
    resource: JobResource | None = None
    masters: tuple[Life, ...] = ()
    lives: tuple[Life, ...] = ()
    plans: tuple[ScalePlan, ...] = ()
    provision: Provision = field(default_factory=lambda: Provision(image=""))
    fresh_token: str = ""
    largest: Mapping[str, Largest] = field(default_factory=dict)  # of roles that were out of memory
    grant: Grant | None = None  # what its queue gives to the job; None: it is in no queue
    queueless: str = ""  # the LocalQueue that it names in a cluster without Kueue
    address: str | None = None  # of the master, "" while it has none; None: it is not asked for beforehand
    unaimed: str = ""  # the uid of the master's Service as long as it selects no pod
    names_from: str | None = None  # the uid of whose Service has the job's name; None: there is no Service
    known_address: str = ""  # of the master, as its nodes know it; only where it has none any more
    absent: tuple[Create, ...] = ()  # of the objects that no cache shows, where they were looked up
    served: frozenset[str] = frozenset()  # the APIs of gang schedulers, as far as the job needs to know

    @cached_property
    def gang(self) -> Gang | None:
        """The gang that was made for the job's pods."""
        return gang_from(self.resource.metadata.annotations) if self.resource else None

    @property
    def begins(self) -> bool:
        """Whether the job is about to have nodes: for the first time, or again after it was suspended."""
        if self.job.spec.suspend:
            return False
        return self.resource is None or self.resource.spec.suspend

    @cached_property
    def master(self) -> Node:
        """The master, by all its lives."""
        ordered = sorted(self.masters, key=lambda life: life.relaunch)
        return Node(names.MASTER, 0, lives=tuple(map(_as_master, ordered)))

    @cached_property
    def nodes(self) -> Mapping[tuple[str, int], Node]:
        """The nodes that have a pod, or once failed."""
        lives = rules.ruled_lives(self.job, self.lives)
        return nodes(lives, self.resource.status if self.resource else JobResourceStatus())

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The wanted nodes of each role: as in the JobResource, or in the job before there is one."""
        if self.resource is None:
            return {r: s.replicas for r, s in self.job.spec.roles.items() if s.replicas is not None}
        specs = self.resource.spec.replica_resource_specs
        roles = self.job.spec.roles
        return {r: s.replicas for r, s in specs.items() if r in roles and s.replicas is not None}

    @cached_property
    def target_nodes(self) -> tuple[Node, ...]:
        """The wanted nodes, with the pods they have had."""
        specs = self.resource.spec.replica_resource_specs if self.resource else {}
        found = {r: specs[r].indices if r in specs else range(count) for r, count in self.sizes.items()}
        places = ((role, index) for role, indices in found.items() for index in indices)
        return tuple(self.nodes.get(place, Node(*place)) for place in places)

    @cached_property
    def last_asked(self) -> Mapping[str, int]:
        """The sizes that the user had asked for when they were last carried out."""
        return counts(self.resource.metadata.annotations.get(names.ASKED) if self.resource else None)

    @cached_property
    def asked_at(self) -> int:
        """The generation of the job in which `last_asked` was asked for."""
        return number(self.resource.metadata.annotations.get(names.ASKED_AT) if self.resource else None)

    @cached_property
    def last_templates(self) -> Mapping[str, Mapping[str, str]] | None:
        """The amounts in the templates when they were last looked at; None if that is not known."""
        annotations = self.resource.metadata.annotations if self.resource else {}
        return decode(annotations.get(names.TEMPLATES), AMOUNTS)

    @property
    def made_from(self) -> str:
        """The hash of what the present nodes are made from; "" if that is not known."""
        return self.resource.metadata.annotations.get(names.MADE_FROM, "") if self.resource else ""

    @cached_property
    def is_stale(self) -> bool:
        """Whether the nodes are made from something else than the job says now."""
        return self.made_from not in ("", made_from(self.job))

    @property
    def has_network_policy(self) -> bool:
        """Whether the job's NetworkPolicy was made, and not deleted since."""
        annotations = self.resource.metadata.annotations if self.resource else {}
        return annotations.get(names.NETWORK) != "false"

    @cached_property
    def last_requested(self) -> Mapping[str, int]:
        """The sizes that the user asked for last: as remembered, or in plans made just before a crash."""
        job, asked = self.job.metadata.name, dict(self.last_asked)
        dated = {names.generation_of(job, plan.metadata.name): plan for plan in self.plans}
        for generation in sorted(at for at in dated if self.asked_at < at <= self.job.metadata.generation):
            specs = dated[generation].spec.replica_resource_specs.items()
            asked |= {role: spec.replicas for role, spec in specs if spec.replicas is not None}
        return asked

    @property
    def newest_request(self) -> ScalePlan | None:
        """The newest plan for what the user asks for."""
        return next((plan for plan in reversed(self.plans) if self.generation_of(plan) >= 0), None)

    def generation_of(self, plan: ScalePlan) -> int:
        """Return the generation of the job that a plan for what the user asks names; -1 for other plans."""
        return next(iter(asked_in(self.job.metadata.name, plan.metadata.name)), -1)

    def policy(self, role: str) -> Policy:
        """How often nodes of a role are created again."""
        found = self._policies.get(role)
        return rules.policy(self.job, role) if found is None else found

    @cached_property
    def _policies(self) -> Mapping[str, Policy]:
        """The policies of the roles of the job: each node asks, and a job may have thousands."""
        return {role: rules.policy(self.job, role) for role in self.job.spec.roles}

    def is_spent(self, node: Node) -> bool:
        """Whether a node failed for good."""
        return node.is_spent(self.policy(node.role))


KUEUE_ABSENT: Final = "KueueAbsent"


def without_kueue(seen: Seen) -> str:
    """Return what becomes of a job that names a queue of Kueue in a cluster without it."""
    return f"the cluster has no Kueue: the job runs without quota of its queue {seen.queueless}"


def _as_master(life: Life) -> Life:
    """Return a master's life, in which exit code 0 without a verdict means that it was told to stop.

    Its probes are the operator's: what they kill is not to blame.
    """
    end = life.ended
    if end is not None and end.reason is ExitReason.PROBE_FAILED:
        return replace(life, ended=replace(end, reason=ExitReason.KILLED))
    if end is None or end.reason is not ExitReason.SUCCEEDED or verdict(end) is not None:
        return life
    return replace(life, ended=replace(end, reason=ExitReason.RUN_AGAIN))
