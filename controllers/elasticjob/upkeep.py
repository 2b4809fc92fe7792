"""Objects of a running job that others delete are made again: in place, or together with their users."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from elasticjob.api.sentences import few
from elasticjob.controllers.elasticjob.objects import address, fingerprint, foundation
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.elasticjob.sizes import all_fields
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.apis import api_of
from elasticjob.controllers.passes.conclusions import is_over
from elasticjob.controllers.passes.plan import SOON, Action, Create, Note, Plan, deletion, group
from elasticjob.kube.objects.views import SECRET, SERVICE_ACCOUNT

ANOTHER_TOKEN: Final = "another token"
"""The value of the annotation `made-from` for a job that has lost its token and gets a different one."""


def has_outside_caches(seen: Seen) -> bool:
    """Whether a job runs and has objects that no cache shows."""
    job = seen.job
    if seen.resource is None or job.spec.suspend or job.metadata.deletion_timestamp or is_over(job):
        return False
    return job.spec.network_policy or job.spec.needs_master or seen.gang is not None


def outside_caches(seen: Seen) -> tuple[Create, ...]:
    """Return the objects of a running job that no cache shows."""
    if not has_outside_caches(seen):
        return ()
    job = seen.job
    made = foundation(job, seen.fresh_token, seen.provision.scrapers, seen.provision.brain_key)
    gang = api_of(seen.gang).manifests(job, seen.gang) if seen.gang else ()
    return (*made, *(Create(kind, manifest) for kind, manifest in gang))


def give_the_masters_address_back(seen: Seen, now: datetime) -> Plan | None:
    """A master's Service that was deleted is made again with the address that nodes know, if that is free."""
    if seen.resource is None or seen.address != "" or not seen.job.spec.needs_master:
        return None
    job = seen.job
    same = ((replace(address(job, seen.known_address), optional=True),),) if seen.known_address else ()
    sentence = f"Service {names.master(job.metadata.name)} is made again, since others have deleted it"
    note = Note("ObjectsMadeAgain", sentence, warning=True)
    return Plan(note.reason, sentence, (*same, (address(job),)), again_in=SOON, details=(note,))


def make_again_what_was_deleted(seen: Seen, now: datetime) -> Plan | None:
    """Objects that others have deleted are made again; what their loss has made useless, with them.

    The credentials of a master end with its ServiceAccount, and nodes of another token reach no master.
    """
    lacking, named = seen.absent, {(each.kind, each.manifest["metadata"]["name"]) for each in seen.absent}
    if not lacking:
        return None
    sentence = f"made again, since others have deleted it: {few(sorted(f'{k.name} {n}' for k, n in named))}"
    if (SECRET, names.token(seen.job.metadata.name)) in named and not _is_derived(seen):
        anew = all_fields(seen, made_from=ANOTHER_TOKEN, token=fingerprint(seen.fresh_token))
        return Plan("TokenLost", f"{sentence}; the token is another one, so all pods leave", ((anew,),))
    life, actions = seen.master.latest, tuple[Action, ...](lacking)
    if any(kind is SERVICE_ACCOUNT for kind, _ in named) and life and life.alive and not life.terminating:
        sentence, actions = f"{sentence}; {life.name} begins again with the new account", (deletion(life),)
    note = Note("ObjectsMadeAgain", sentence, warning=True)
    return Plan(note.reason, note.sentence, group(actions), again_in=SOON, details=(note,))


def _is_derived(seen: Seen) -> bool:
    """Whether the token that the job would get now is the one that its nodes have."""
    known = seen.resource.metadata.annotations.get(names.TOKEN) if seen.resource else None
    return known == fingerprint(seen.fresh_token)
