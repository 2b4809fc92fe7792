"""Owner references: by them the garbage collector removes the objects that were made for one of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.parts import names
from elasticjob.kube.cache.wire import Meta, Owner
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ObjectMeta,
    OwnerReference,
)

_KINDS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, TRAININGJOB)
_WITHOUT_ORPHANS: Final[tuple[Kind[Any], ...]] = (DIJOB,)
"""The garbage collector alone removes what belongs to these."""
_UNFOLLOWED: Final[Mapping[Kind[Any], Callable[[str], str]]] = {
    SECRET: names.token,
    SERVICE_ACCOUNT: names.master,
    ROLE: names.master,
    ROLE_BINDING: names.master,
    NETWORK_POLICY: str,
    POD_DISRUPTION_BUDGET: str,
    CONFIG_MAP: names.master_state,
}


class Ownership(NamedTuple):
    """An object whose only owner is one of ours, as it was seen."""

    kind: Kind[Any]
    name: str
    uid: str
    version: str
    owner: OwnerReference


def controlled_by(owner: CustomResource) -> Manifest:
    """Return the ownerReference that makes `owner` the controller of an object."""
    return owner_reference(owner, kind_of(owner))


def manifest_of(kind: Kind[Any], metadata: Manifest, **body: Any) -> Manifest:
    """Return an object of a kind as it is sent to the server."""
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body}


def kind_of(thing: CustomResource) -> Kind[Any]:
    """Return the kind of one of our objects."""
    return next(kind for kind in (*_KINDS, *_WITHOUT_ORPHANS) if isinstance(thing, kind.model))


def controller_uid(metadata: ObjectMeta) -> str:
    """Return the uid of the object's controller, "" where it has none."""
    return next((owner.uid for owner in metadata.owner_references if owner.controller), "")


def is_part(metadata: ObjectMeta, owner: CustomResource) -> bool:
    """Whether an object was made for `owner`, of its namespace: in others anybody may write its uid."""
    whose = owner.metadata
    return controller_uid(metadata) == whose.uid and metadata.namespace == whose.namespace


def controller_name(metadata: ObjectMeta, *kinds: Kind[Any]) -> str:
    """Return the name of the object's controller if that is of `kinds` (ours by default), else ""."""
    owner = controller_of(metadata, *kinds)
    return owner.name if owner else ""


def job_name(metadata: ObjectMeta) -> str:
    """Return the name of the job that an object belongs to, "" without one.

    The owner reference says it, since anybody may edit labels; the label says it where there is none.
    """
    return controller_name(metadata) or metadata.labels.get(LABEL_JOB, "")


def controller_of(metadata: ObjectMeta, *kinds: Kind[Any]) -> OwnerReference | None:
    """Return the reference to the object's controller if that is of `kinds` (ours by default)."""
    ours = (
        owner for owner in metadata.owner_references if owner.controller and kind_by_reference(owner, *kinds)
    )
    return next(ours, None)


def kind_by_reference(owner: OwnerReference | Owner, *kinds: Kind[Any]) -> Kind[Any] | None:
    """Return the kind that a reference names, if it is of `kinds` (ours by default)."""
    named = (
        kind for kind in kinds or _KINDS if (owner.api_version, owner.kind) == (kind.api_version, kind.name)
    )
    return next(named, None)


def owner_of(metadata: ObjectMeta | Meta) -> OwnerReference | None:
    """Return the reference to the object's only owner if that is one of ours.

    The garbage collector keeps an object until its last owner is gone.
    """
    match metadata.owner_references:
        case [owner] if kind_by_reference(owner):
            return OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid)
        case _:
            return None


def owned_by_ours(kind: Kind[Any], metadata: ObjectMeta | Meta) -> Ownership | None:
    """Return an object with its only owner; None if that is not ours, or the object is being deleted."""
    owner = owner_of(metadata)
    if owner is None or metadata.deletion_timestamp is not None:
        return None
    return Ownership(kind, metadata.name, metadata.uid, metadata.resource_version, owner)


def kinds_outside_caches(owner: OwnerReference) -> list[tuple[Kind[Any], str]]:
    """Return kinds and names of the objects that a job may have and no cache shows."""
    every = (*_UNFOLLOWED.items(), (SECRET, names.brain_token))
    named = every if owner.kind == ELASTICJOB.name else ()
    return [(kind, name(owner.name)) for kind, name in named]
