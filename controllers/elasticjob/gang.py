"""The gang of a job: when it is made, and what of it follows the job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import structs

from elasticjob.api.v1alpha1.elasticjob import Gang as Word
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.controllers.parts.gangs.apis import api_of
from elasticjob.controllers.parts.gangs.choice import absence, chosen, follow, gang_of, possible
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.passes.plan import LATER, Action, Create, CreateOrApply, Note, Plan

GANG_UNAVAILABLE: Final = "GangUnavailable"
ONE_BY_ONE: Final = "pods are placed one by one"


@dataclass(frozen=True)
class Begin:
    """The gang of a job that begins: None without one, the writes that make it, and what to tell."""

    gang: Gang | None
    groups: tuple[tuple[Action, ...], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def creations(self) -> tuple[Create, ...]:
        """The objects that are made."""
        return tuple(action for group in self.groups for action in group if isinstance(action, Create))


def looks_for_an_api(seen: Seen) -> bool:
    """Whether the decision rests on the APIs of gang schedulers that the cluster has."""
    return seen.begins and bool(possible(seen.job))


def wait_for_a_gang_scheduler(seen: Seen, now: datetime) -> Plan | None:
    """A job that requires a gang has no pods while no API can place one."""
    word = seen.job.spec.run_policy.scheduling.gang
    if not seen.begins or word in (Word.NONE, Word.PREFERRED) or chosen(seen.job, seen.served):
        return None
    return Plan(GANG_UNAVAILABLE, absence(seen.job), again_in=LATER)


def begin(seen: Seen) -> Begin:
    """Return the gang of a job that begins. Objects that it has already are not made again.

    Where what is immutable in the gang it had differs now, objects of a new name are made.
    """
    word, api = seen.job.spec.run_policy.scheduling.gang, chosen(seen.job, seen.served)
    if word is Word.NONE or api is None:
        sentence = f"{absence(seen.job)}: {ONE_BY_ONE}"
        return Begin(
            None, notes=() if word is Word.NONE else (Note(GANG_UNAVAILABLE, sentence, warning=True),)
        )
    gang, before = gang_of(seen.job, api, _sizes(seen), seen.provision.gang_scheduler), seen.gang
    follows = before is not None and before.api == gang.api
    if before is not None and follows:
        same = all(getattr(before, field) == getattr(gang, field) for field in api.fixed)
        gang = structs.replace(gang, name=before.name if same else _name_of_another(seen))
        follows = same
    made = tuple((Create(kind, manifest),) for kind, manifest in api.manifests(seen.job, gang))
    return Begin(gang, (*made[:-1], *changes(seen, gang)) if follows and gang != before else made)


def changed_gang(seen: Seen) -> Gang | None:
    """Return the gang that a running job should have, if it is not the one it has."""
    if seen.gang is None or seen.job.spec.suspend:
        return None
    wanted = follow(seen.gang, seen.job, _sizes(seen))
    return wanted if wanted != seen.gang else None


def changes(seen: Seen, gang: Gang) -> tuple[tuple[Action, ...], ...]:
    """Return the writes that bring the last object of a gang to what it should be."""
    kind, manifest = api_of(gang).manifests(seen.job, gang)[-1]
    return ((CreateOrApply(kind, manifest),),)


def _name_of_another(seen: Seen) -> str:
    return f"{seen.job.metadata.name}-{seen.job.metadata.generation}"


def _sizes(seen: Seen) -> dict[str, int]:
    """Return the nodes of each role of which a gang can be.

    Where a node waits for a pod, those that have done their work are not counted: they will not run again.
    """
    found = {role: seen.job.spec.range_of(role).lowest for role in seen.job.spec.roles} | dict(seen.sizes)
    if not any(_waits(node) for node in seen.target_nodes):
        return found
    done = Counter(node.role for node in seen.target_nodes if node.succeeded)
    return {role: count - done[role] for role, count in found.items()}


def _waits(node: Node) -> bool:
    life = node.latest
    return not node.succeeded and not (life and life.running)
