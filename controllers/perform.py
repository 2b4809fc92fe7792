"""All writes of the operator: the actions of a plan, events, and the status last."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.controllers import names
from elasticjob.controllers.owners import (
    Owned,
    controller_uid,
    kind_named,
    kind_of,
    owner_of,
    owner_uid,
    unfollowed,
)
from elasticjob.controllers.plan import (
    LATER,
    NAME_TAKEN,
    REFUSED,
    SOON,
    Action,
    Apply,
    Create,
    Delete,
    Note,
    Plan,
    Resize,
)
from elasticjob.kube.client import Client
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from elasticjob.kube.events import Recorder, reference
from elasticjob.kube.kinds import Kind, Manifest
from elasticjob.kube.objects import POD, EventType, ObjectMeta, OwnerReference

T = TypeVar("T")

AT_ONCE: Final = 32
"""Writes of one pass that are under way at the same time."""

log = logging.getLogger(__name__)


class InTheWay(Exception):
    """An object of a wanted name belongs to another owner, such as a job whose objects are still being
    collected, or to somebody whose it is to remove: look again in a moment, or later."""

    def __init__(self, kind: str, name: str, again_in: timedelta) -> None:
        super().__init__(
            f"{kind} {name} exists and does not belong to this object: it is made when that one is gone"
        )
        self.again_in = again_in


class Behind(Exception):
    """An object is not as it was seen, and what it has said since matters: look again."""


class _Bare(msgspec.Struct, frozen=True):
    """An object of which only the metadata matters, whether or not the rest fits a model."""

    metadata: ObjectMeta


class Hand:
    """Writes for one controller, under its own field manager."""

    def __init__(self, client: Client, recorder: Recorder, manager: str) -> None:
        self._client = client
        self._recorder = recorder
        self._manager = manager
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def attempt(self, owner: CustomResource, plan: Plan) -> Plan:
        """Do what `plan` says, and return it; or return what kept it from being done, and tell people.

        The plan comes back with a time to look again where an object was not as it was seen.
        NameTaken: another owner's object is in the way. Refused: the server does not accept what we write, as
        for a pod template that is not valid or a quota that is used up. Both are tried again after a while.
        """
        try:
            await self.perform(owner, plan)
        except InTheWay as error:
            return Plan(NAME_TAKEN, str(error), again_in=error.again_in)
        except Behind:
            return plan.again_by(SOON)
        except (BadRequest, Forbidden, Invalid) as error:
            self.tell(owner, Note(REFUSED, error.message, warning=True))
            return Plan(REFUSED, error.message, again_in=LATER)
        return plan

    async def perform(self, owner: CustomResource, plan: Plan) -> None:
        """Do what `plan` says for `owner`: groups in order, their members at once, then tell people.

        Raises the first error of a group after all its members were tried: InTheWay, Behind, ApiError,
        Unreachable.
        """
        for group in plan.groups:
            await _together(self._do(owner, action) for action in group)
        for note in plan.notes:
            self.tell(owner, note)

    def tell(self, owner: CustomResource, note: Note) -> None:
        """Record an event about `owner`, and log it."""
        type_: EventType = "Warning" if note.warning else "Normal"
        self._recorder.event(reference(kind_of(owner), owner), type_, note.reason, note.sentence)
        log.info(note.sentence, extra={"object": str(owner.key), "reason": note.reason})

    async def write_status(
        self, kind: Kind[Any], owner: CustomResource, status: Manifest, old: Manifest
    ) -> bool:
        """Apply the status of `owner` unless it is as before; returns whether it was written.

        An object that is gone needs no status.
        """
        if status == old:
            return False
        identity = {
            "name": owner.metadata.name,
            "namespace": owner.metadata.namespace,
            "uid": owner.metadata.uid,
        }
        manifest = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": identity, "status": status}
        return await self._apply(kind, manifest, "status")

    async def is_there(self, kind: Kind[Any], thing: CustomResource) -> bool:
        """Whether the server, asked itself, still has this life of an object, and means to keep it."""
        about = thing.metadata
        found = await self._metadata(kind, about.name, about.namespace)
        return found.uid == about.uid and found.deletion_timestamp is None

    async def collect(
        self, orphans: Iterable[Owned], namespace: str, besides: Iterable[OwnerReference] = ()
    ) -> list[OwnerReference]:
        """Delete those of some objects whose owner is gone, as the server itself says.

        With them goes what else belongs to their owners, and to those named `besides`, and no cache shows.
        Returns the owners of whom something may be left: no failure keeps anything else from being done.
        """
        owners = {owner.uid: owner for owner in besides}
        owned: dict[str, list[Owned]] = defaultdict(list)
        for orphan in orphans:
            owner = owner_of(orphan.metadata)
            if owner is not None:
                owners[owner.uid] = owner
                owned[owner.uid].append(orphan)
        collected = [await self._collect(owner, namespace, owned[uid]) for uid, owner in owners.items()]
        return [owner for owner, all_ in zip(owners.values(), collected, strict=True) if not all_]

    async def _do(self, owner: CustomResource, action: Action) -> None:
        async with self._slots:
            match action:
                case Create(kind, manifest):
                    await self._create(kind, manifest)
                case Apply(kind, manifest, part):
                    await self._apply(kind, manifest, part)
                case Delete():
                    await self._delete(owner.metadata.namespace, action)
                case Resize():
                    await self._resize(owner.metadata.namespace, action)

    async def _apply(self, kind: Kind[Any], manifest: Manifest, subresource: str) -> bool:
        """Apply what we say about an object; False where it is gone: a status then has no reader."""
        said = (
            {**manifest, "status": without_empty(manifest["status"])} if subresource == "status" else manifest
        )
        try:
            await self._client.apply(kind.untyped(), said, manager=self._manager, subresource=subresource)
        except NotFound:
            if not subresource:
                raise
            return False
        return True

    async def _create(self, kind: Kind[Any], manifest: Manifest) -> None:
        """Create the object, or find that its owner has it already."""
        try:
            await self._client.create(kind.untyped(), manifest)  # nobody reads the answer
        except AlreadyExists:
            metadata = manifest["metadata"]
            found = await self._client.find(kind, metadata["name"], metadata["namespace"])
            ours = {owner["uid"] for owner in metadata.get("ownerReferences", []) if owner.get("controller")}
            if found is None:
                raise InTheWay(kind.name, metadata["name"], SOON) from None
            if controller_uid(found.metadata) not in ours:
                raise InTheWay(
                    kind.name, metadata["name"], await self._displace(kind, found.metadata)
                ) from None

    async def _displace(self, kind: Kind[Any], there: ObjectMeta) -> timedelta:
        """Delete what is in the way if its owner is gone; returns when to look again."""
        owner = owner_of(there)
        if there.deletion_timestamp is None and owner is None:
            return LATER  # it is none that the end of one of ours takes along
        if there.deletion_timestamp is None and owner and not await self._lives(owner, there.namespace):
            await self._bury(kind, there)
        return SOON

    async def _collect(self, owner: OwnerReference, namespace: str, orphans: Sequence[Owned]) -> bool:
        """Delete what belongs to an owner if that is gone; returns whether nothing of it stays behind."""
        about = {"owner": f"{owner.kind} {namespace}/{owner.name}", "uid": owner.uid, "many": len(orphans)}
        try:
            if await self._lives(owner, namespace):
                return True
        except (ApiError, Unreachable) as error:
            log.warning("whether an owner is gone cannot be asked", extra=about | {"error": str(error)})
            return False
        log.info("what has outlived its owner is deleted", extra=about)
        # what no cache shows goes first: without the rest nobody would look for it after a restart
        hidden = [await self._bury_hidden(owner, *named, namespace) for named in unfollowed(owner)]
        return await self._bury_all(orphans) and all(hidden)

    async def _bury_hidden(self, owner: OwnerReference, kind: Kind[Any], name: str, namespace: str) -> bool:
        """Delete an object that no cache shows, if there is one and it belongs to an owner."""
        try:
            found = await self._metadata(kind, name, namespace)
        except (ApiError, Unreachable) as error:
            about = {"kind": kind.name, "object": f"{namespace}/{name}", "error": str(error)}
            log.warning("an object that may have outlived its owner cannot be looked at", extra=about)
            return False
        return owner_uid(found) != owner.uid or await self._bury(kind, found)

    async def _bury_all(self, orphans: Sequence[Owned]) -> bool:
        """Delete objects, some at once; where none of some can be deleted, the rest is not tried either."""
        gone = True
        for start in range(0, len(orphans), AT_ONCE):
            buried = await _together(self._bury(*each) for each in orphans[start : start + AT_ONCE])
            gone = gone and all(buried)
            if not any(buried):
                break
        return gone

    async def _lives(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether the server, asked itself, has this life of an owner, or it is none of ours."""
        kind = kind_named(owner)
        return kind is None or (await self._metadata(kind, owner.name, namespace)).uid == owner.uid

    async def _bury(self, kind: Kind[Any], orphan: ObjectMeta) -> bool:
        """Delete one object as it was seen; returns whether it is gone."""
        name, namespace, uid, version = orphan.name, orphan.namespace, orphan.uid, orphan.resource_version
        try:
            await self._client.delete(kind, name, namespace, uid=uid, version=version)
        except Conflict:  # it has changed since, and may have been made free: whoever looks again will see
            return False
        except (ApiError, Unreachable) as error:
            about = {"kind": kind.name, "object": f"{namespace}/{name}", "error": str(error)}
            log.warning("an object that has outlived its owner could not be deleted", extra=about)
            return False
        return True

    async def _metadata(self, kind: Kind[Any], name: str, namespace: str) -> ObjectMeta:
        """What the server, asked itself, says of an object; nothing where there is none."""
        try:
            found: _Bare = await self._client.get(replace(kind, model=_Bare), name, namespace)
        except NotFound as error:
            if error.details.get("name") != name:  # a kind that is not served says nothing of its objects
                raise Unreachable(f"{kind.name} {name}: the server does not know this kind now") from error
            return ObjectMeta()
        return found.metadata

    async def _delete(self, namespace: str, action: Delete) -> None:
        """Delete an object. Raises Behind where it is to be deleted only as it was seen, and is not."""
        uid, version = action.uid, action.version
        try:
            await self._client.delete(
                action.kind, action.name, namespace, uid=uid, version=version, grace=action.grace
            )
        except Conflict:
            if version is not None:
                raise Behind from None
            return  # a namesake of another uid: ours is gone

    async def _resize(self, namespace: str, action: Resize) -> None:
        containers = [{"name": action.container, "resources": action.resources}]
        patch: Manifest = {"metadata": {"uid": action.uid}, "spec": {"containers": containers}}
        try:
            await self._client.merge_patch(
                POD, action.pod, patch, namespace, subresource="resize", strategic=True
            )
        except (Conflict, NotFound):  # not this pod any more, or a server without the subresource
            await self._mark_refused(namespace, action)
        except (Invalid, Forbidden) as error:
            log.info("a resize in place is refused", extra={"object": action.pod, "error": str(error)})
            await self._mark_refused(namespace, action)

    async def _mark_refused(self, namespace: str, action: Resize) -> None:
        patch = {"metadata": {"uid": action.uid, "annotations": {names.RESIZE: "refused"}}}
        try:
            await self._client.merge_patch(POD, action.pod, patch, namespace)
        except (Conflict, Invalid, NotFound):  # not this pod any more: a patch for another uid is invalid
            return


def without_empty(status: Manifest) -> Manifest:
    """Return a status without empty maps and lists: the server merges such to null, and refuses that."""
    return {field: value for field, value in status.items() if value not in ({}, [])}


async def _together(writes: Iterable[Awaitable[T]]) -> list[T]:
    """Await all writes, then raise the first error, ApiErrors before others since they say more."""
    results = await asyncio.gather(*writes, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=lambda error: not isinstance(error, ApiError))
    return [result for result in results if not isinstance(result, BaseException)]
