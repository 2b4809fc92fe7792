"""The writes of a pass: the actions of its plan, events, and the status last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Container, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeVar

from elasticjob.api.belongings import foreign
from elasticjob.api.troubles.causes import cause_of
from elasticjob.api.v1alpha1.common import GROUP
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import controller_uid, kind_of, manifest_of, owned_by_ours
from elasticjob.controllers.passes.observe import Caches, read_metadata
from elasticjob.controllers.passes.plan import (
    LATER,
    NAME_TAKEN,
    REFUSED,
    SOON,
    Action,
    Apply,
    Create,
    CreateOrApply,
    Delete,
    DeleteOwned,
    Note,
    Patch,
    Plan,
    Resize,
)
from elasticjob.kube.cache.wire import Meta, Owner
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import Recorder, reference
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
)
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, POD, SECRET, EventType, ObjectMeta, OwnerReference

T = TypeVar("T")
M = TypeVar("M", Create, CreateOrApply)

AT_ONCE: Final = 32
"""Writes of a controller that are in flight at the same time."""

MOST_LOOKED_UP: Final = 16
"""Objects of volumes that a pass looks up at most."""

log = logging.getLogger(__name__)


class InTheWay(Exception):
    """An object of a wanted name has another owner; without `found`, it was gone again a moment later."""

    def __init__(self, kind: Kind[Any], name: str, found: ObjectMeta | Meta | None) -> None:
        super().__init__(
            f"{kind.name} {name} exists and is not owned by this object: it is created once that one is gone"
        )
        self.obstacle = owned_by_ours(kind, found) if found else None
        stays = found is not None and found.deletion_timestamp is None and self.obstacle is None
        self.again_in = LATER if stays else SOON


class Behind(Exception):
    """An object has changed since it was seen, and its new state matters: look again."""


class Applier:
    """Writes for one controller, under its own field manager."""

    def __init__(
        self, client: Client, recorder: Recorder, manager: str, caches: Caches | None = None
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._manager = manager
        self._caches = caches
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def attempt(self, owner: CustomResource, plan: Plan, *, refused: str = "") -> Plan:
        """Carry out `plan` and return it; or return a plan that says why not, and when to try again.

        NameTaken: another owner's object has a wanted name. Refused: the server does not accept a write, for
        example because of an invalid pod template or a used-up quota. If an object has changed since it was
        seen, the plan itself comes back, with a time to look again. `refused` is the reason of the event
        about a refusal; "" says Refused, or its cause.
        """
        barred, allowed = await self._without_what_is_barred(owner, plan)
        try:
            await self.perform(owner, allowed)
        except InTheWay as error:
            return Plan(NAME_TAKEN, str(error), again_in=error.again_in, obstacle=error.obstacle)
        except Behind:
            return plan.again_by(SOON)
        except (BadRequest, Forbidden, Invalid, ServerError) as error:
            if isinstance(error, ServerError) and not _is_of_a_webhook_of_others(error):
                raise
            self.tell(owner, Note(refused or cause_of(REFUSED, error.message), error.message, warning=True))
            return Plan(REFUSED, error.message, again_in=LATER)
        if barred:
            self.tell(owner, Note(refused or REFUSED, barred, warning=True))
            return Plan(REFUSED, barred, again_in=LATER)
        return plan

    async def _without_what_is_barred(self, owner: CustomResource, plan: Plan) -> tuple[str, Plan]:
        """Return why no pods are made from the templates of `owner`, and the plan without them: these name
        what belongs to another job. "" and the plan where they do not.
        """
        if not any(isinstance(each, Create) and each.kind is POD for each in plan.actions):
            return "", plan

        async def find(kind: Kind[Any], name: str) -> ObjectMeta:
            return await read_metadata(self._client, kind, name, owner.metadata.namespace)

        found = await foreign(owner, find, absent=True)
        if not found:
            return "", plan
        return "; ".join(map(str, found)), plan.without(POD)

    async def perform(self, owner: CustomResource, plan: Plan) -> None:
        """Carry out `plan` for `owner`: groups in order, the members of a group at once, then events.

        Nothing is written while the caches show what is in the way of a later group. Raises the first error
        of a group after all its members were tried: InTheWay, Behind, ApiError, Unreachable.
        """
        for action in chain.from_iterable(plan.groups[1:]):
            self._expect_no_other(action)
        for group in plan.groups:
            await _together(self._do(owner, action) for action in group)
        for note in plan.notes:
            self.tell(owner, note)

    def tell(self, owner: CustomResource, note: Note) -> None:
        """Record an event about `owner`, and log it."""
        type_: EventType = "Warning" if note.warning else "Normal"
        about = reference(kind_of(owner), owner)
        self._recorder.event(about, type_, note.reason, note.sentence, note.times)
        level = logging.WARNING if note.warning else logging.INFO
        job = {"namespace": owner.key.namespace, "job": owner.key.name}
        told = {"object": str(owner.key), "reason": note.reason}
        log.log(level, note.sentence, extra=told | (job if isinstance(owner, ElasticJob) else {}))

    async def write_status(
        self, kind: Kind[Any], owner: CustomResource, status: Manifest, old: Manifest
    ) -> bool:
        """Apply the status of `owner` unless it is as before; returns whether it was written.

        Returns False for an object that is gone.
        """
        if status == old:
            return False
        identity = {
            "name": owner.metadata.name,
            "namespace": owner.metadata.namespace,
            "uid": owner.metadata.uid,
        }
        return await self._apply(kind, manifest_of(kind, identity, status=status), "status")

    async def is_there(self, kind: Kind[Any], thing: CustomResource) -> bool:
        """Whether the server itself still has this object and is not deleting it."""
        about = thing.metadata
        found = await read_metadata(self._client, kind, about.name, about.namespace)
        return found.uid == about.uid and found.deletion_timestamp is None

    async def has(self, kind: Kind[Any], key: Key) -> bool:
        """Whether the server itself has an object of this name."""
        return bool((await read_metadata(self._client, kind, key.name, key.namespace)).uid)

    async def read_by_labels(self, kind: Kind[T], namespace: str, labels: str) -> list[T]:
        """Return the objects with these labels that the server itself has."""
        return await self._client.list(kind, namespace, labels=labels)

    async def confirm(self, lives: tuple[Life, ...], machines: Container[str]) -> tuple[Life, ...]:
        """Return `lives`, of which none is lost whose machine the server has, though `machines` has it not.

        The cache of Nodes may be behind that of pods.
        """
        asked = sorted({life.machine for life in lives if life.lost and life.machine not in machines})
        found = await _together(read_metadata(self._client, NODE, name, "") for name in asked)
        there = {name for name, metadata in zip(asked, found, strict=True) if metadata.uid}
        return tuple(replace(life, lost=False) if life.machine in there else life for life in lives)

    async def missing(self, namespace: str, needs: Iterable[str]) -> frozenset[str]:
        """Return which ConfigMaps and Secrets, as in `Life.needs`, the server does not have."""
        kinds = {kind.name: kind for kind in (CONFIG_MAP, SECRET)}
        asked = sorted({need for need in needs if need.partition(" ")[0] in kinds})[:MOST_LOOKED_UP]
        parts = (need.partition(" ") for need in asked)
        lacking = await self._lacks(((kinds[kind], name) for kind, _, name in parts), namespace)
        return frozenset(need for need, lacks in zip(asked, lacking, strict=True) if lacks)

    async def absent(self, made: Iterable[M]) -> tuple[M, ...]:
        """Return those of the objects of a job that the server does not have."""
        objects = tuple(made)
        about = [each.manifest["metadata"] for each in objects]
        named = ((each.kind, metadata["name"]) for each, metadata in zip(objects, about, strict=True))
        lacking = await self._lacks(named, about[0]["namespace"] if about else "")
        return tuple(each for each, lacks in zip(objects, lacking, strict=True) if lacks)

    async def _lacks(self, named: Iterable[tuple[Kind[Any], str]], namespace: str) -> list[bool]:
        """Whether the server says of each object that it is not there."""
        reads = (read_metadata(self._client, kind, name, namespace) for kind, name in named)
        found = await asyncio.gather(*reads, return_exceptions=True)
        return [isinstance(about, ObjectMeta) and not about.uid for about in found]

    async def _do(self, owner: CustomResource, action: Action) -> None:
        self._expect_no_other(action)
        async with self._slots:
            match action:
                case Create(kind, manifest, optional=True):
                    try:
                        await self._create(kind, manifest)
                    except (Forbidden, Invalid) as error:  # a quota, or an address that another has
                        self.tell(owner, Note(cause_of(REFUSED, error.message), error.message))
                case Create(kind, manifest, handed_on=handed_on):
                    await self._create(kind, manifest, of_any_owner=handed_on)
                case CreateOrApply(kind, manifest):
                    if uid := await self._create(kind, manifest):
                        metadata = {**manifest["metadata"], "uid": uid}
                        await self._apply(kind, {**manifest, "metadata": metadata}, "")
                case Apply(kind, manifest, part):
                    await self._apply(kind, manifest, part)
                case Delete():
                    await self._delete(owner.metadata.namespace, action)
                case DeleteOwned(kind, name, uid):
                    namespace = owner.metadata.namespace
                    found = await read_metadata(self._client, kind, name, namespace)
                    if controller_uid(found) == uid:
                        await self._delete(namespace, Delete(kind, name, found.uid))
                case Resize():
                    await self._resize(owner.metadata.namespace, action)
                case Patch():
                    await self._patch(owner.metadata.namespace, action)

    def _expect_no_other(self, action: Action) -> None:
        """Raise InTheWay where the caches show an object of the name that has another owner."""
        if self._caches and isinstance(action, Create | CreateOrApply):
            metadata = action.manifest["metadata"]
            found = self._caches.meta(action.kind, Key(metadata["namespace"], metadata["name"]))
            if found and not _is_controlled_alike(metadata, found.owner_references or ()):
                raise InTheWay(action.kind, metadata["name"], found)

    async def _apply(self, kind: Kind[Any], manifest: Manifest, subresource: str) -> bool:
        """Apply a manifest; returns False if the object of a status is gone.

        Raises ValueError without a uid: the apply is forced, and would take over another owner's object.
        """
        if not manifest["metadata"].get("uid"):
            raise ValueError(f"{kind.name} {manifest['metadata']['name']} is applied without a uid")
        sent = (
            {**manifest, "status": without_empty(manifest["status"])} if subresource == "status" else manifest
        )
        try:
            await self._client.apply(kind.untyped(), sent, manager=self._manager, subresource=subresource)
        except NotFound:
            if not subresource:
                raise
            return False
        return True

    async def _create(self, kind: Kind[Any], manifest: Manifest, *, of_any_owner: bool = False) -> str:
        """Create the object, or find that its owner has it already: its uid then, else ""."""
        try:
            await self._client.create(kind.untyped(), manifest)  # the response is not read
        except AlreadyExists:
            metadata = manifest["metadata"]
            found = await self._client.find(kind, metadata["name"], metadata["namespace"])
            owners = found.metadata.owner_references if found else ()
            if not _is_controlled_alike(metadata, owners, by_any=of_any_owner):
                there = found.metadata if found else None
                raise InTheWay(kind, metadata["name"], there) from None
            return found.metadata.uid if found else ""
        return ""

    async def _delete(self, namespace: str, action: Delete) -> None:
        """Delete an object. Raises Behind if it is not at the version at which it should be deleted."""
        uid, version = action.uid, action.version
        try:
            await self._client.delete(
                action.kind, action.name, namespace, uid=uid, version=version, grace=action.grace
            )
        except Conflict:
            if version is not None:
                raise Behind from None
            return  # a namesake of another uid: ours is gone

    async def _patch(self, namespace: str, action: Patch) -> None:
        """Patch an object. Raises Behind if it is not at the version at which it should be patched."""
        version = {} if action.version is None else {"resourceVersion": action.version}
        about = {**action.body.get("metadata", {}), "uid": action.uid, **version}
        try:
            await self._client.merge_patch(
                action.kind.untyped(),
                action.name,
                {**action.body, "metadata": about},
                namespace,
                subresource=action.subresource,
            )
        except NotFound:
            return
        except Conflict:
            raise Behind from None

    async def _resize(self, namespace: str, action: Resize) -> None:
        containers = [{"name": action.container, "resources": action.resources}]
        patch: Manifest = {"metadata": {"uid": action.uid}, "spec": {"containers": containers}}
        try:
            await self._client.merge_patch(
                POD, action.pod, patch, namespace, subresource="resize", strategic=True
            )
            note = {names.RESOURCE: names.written(action.resource)}
        except (Conflict, NotFound):  # not this pod any more, or a server without the subresource
            note = {names.RESIZE: "refused"}
        except (Invalid, Forbidden) as error:
            log.warning("a resize in place is refused", extra={"object": action.pod, "error": str(error)})
            note = {names.RESIZE: "refused"}
        about = {"metadata": {"uid": action.uid, "annotations": note}}
        try:
            await self._client.merge_patch(POD, action.pod, about, namespace)
        except (Conflict, Invalid, NotFound):  # not this pod any more: a patch for another uid is invalid
            return


def without_empty(status: Manifest) -> Manifest:
    """Return a status without empty maps and lists: the server merges them to null, which it refuses."""
    return {field: value for field, value in status.items() if value not in ({}, [])}


def _is_of_a_webhook_of_others(error: ServerError) -> bool:
    """Whether a webhook that is not ours did not answer: a person has to mend it."""
    return cause_of(REFUSED, error.message) == "WebhookFails" and GROUP not in error.message


def _is_controlled_alike(
    wanted: Manifest, owners: Iterable[OwnerReference | Owner], *, by_any: bool = False
) -> bool:
    """Whether one of `owners` controls the wanted object, too; `by_any`: or owns it."""
    ours = {owner["uid"] for owner in wanted.get("ownerReferences", []) if owner.get("controller")}
    return not ours.isdisjoint(owner.uid for owner in owners if owner.controller or by_any)


async def _together(writes: Iterable[Awaitable[T]]) -> list[T]:
    """Await all writes, then raise the first error, ApiErrors before others: they are more specific."""
    results = await asyncio.gather(*writes, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=lambda error: not isinstance(error, ApiError))
    return [result for result in results if not isinstance(result, BaseException)]
