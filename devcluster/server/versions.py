"""Custom kinds whose versions differ in form: a webhook converts, at the edge of the server.

Inside, an object is in the version that is stored. A request in another one is read and checked in its own,
then converted; so is the answer, each object of a list and each event of a watch. One that was stored while
another version was the stored one is converted when it is touched.
Who applies in one version conflicts with who applied in another only over fields that both have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from elasticjob.devcluster.server import errors, managed
from elasticjob.devcluster.server.asking import Answer, Options
from elasticjob.devcluster.server.call import APPLY, Call
from elasticjob.devcluster.server.decoding import decode as decode_body
from elasticjob.devcluster.server.errors import StatusError, conflict
from elasticjob.devcluster.server.fields import nodes
from elasticjob.devcluster.server.lists import Form, page, render_list, render_one
from elasticjob.devcluster.server.objects import Objects
from elasticjob.devcluster.server.registry import Resource
from elasticjob.devcluster.server.store import Manifest, Stored, decode, encode
from elasticjob.devcluster.server.table import partial, table
from elasticjob.devcluster.server.verbs import Reply, Verbs
from elasticjob.devcluster.server.watching import Request

_JSON = "application/json"
_ATTEMPTS = 8


class Converter(Protocol):
    """Asks the webhook of a kind."""

    async def convert(self, resource: Resource, items: Sequence[Manifest]) -> list[Manifest]:
        """The objects in this version, in their order. Raises StatusError when the webhook does not."""


class Versions(Verbs):
    """The verbs, in every version."""

    def __init__(self, objects: Objects, converter: Converter, now: Callable[[], datetime]) -> None:
        super().__init__(objects, now)
        self._converter = converter

    async def get(self, call: Call) -> Reply:
        reply = await super().get(self._plain(call))
        return await self._out(call, reply)

    async def collection(self, call: Call) -> Reply:
        resource = call.target.resource
        if not resource.webhook:
            return await super().collection(call)
        found = page(self._objects.store, call.target, call.query)
        items = await self._converter.convert(resource, [item.body for item in found.items])
        converted = [
            Stored(body, encode(body), item.version) for body, item in zip(items, found.items, strict=True)
        ]
        return Reply(200, render_list(resource, replace(found, items=converted), call.form, self._now()))

    async def create(self, call: Call) -> Reply:
        if not _is_converted(call):
            return await super().create(call)
        warnings: list[str] = []
        new = self._read(call, call.manifest(), warnings)
        self._objects.default(call.target.resource, new)
        self._objects.check(call.target.resource, new, None, [])
        return await self._out(call, await super().create(await self._inner(call, new)), warnings)

    async def update(self, call: Call) -> Reply:
        await self._modernise(call)
        if not _is_converted(call):
            return await super().update(call)
        warnings: list[str] = []
        new = self._read(call, call.manifest(), warnings)
        self._objects.check(call.target.resource, new, None, [], call.target.subresource)
        return await self._out(call, await super().update(await self._inner(call, new)), warnings)

    async def patch(self, call: Call) -> Reply:
        await self._modernise(call)
        if not _is_converted(call) and call.media != APPLY:
            return await super().patch(call)
        for _ in range(_ATTEMPTS):
            try:
                return await (self._apply(call) if call.media == APPLY else self._patch(call))
            except StatusError as error:
                if error.reason != "Conflict" or errors.STALE not in error.message:
                    raise
        raise conflict(
            call.target.resource.group, call.target.resource.plural, call.target.name, errors.STALE
        )

    async def delete(self, call: Call) -> Reply:
        return await self._out(call, await super().delete(self._plain(call)))

    async def watched(self, asked: Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The lines of a watch (in plain form) in the version and form that were asked for."""
        resource = asked.target.resource
        if not resource.webhook:
            async for piece in lines:
                yield piece
            return
        headers = True
        async for piece in lines:
            events = [decode(line) for line in piece.splitlines()]
            told = [event for event in events if event["type"] not in ("BOOKMARK", "ERROR")]
            try:
                converted = await self._converter.convert(resource, [event["object"] for event in told])
            except StatusError as error:
                yield _line("ERROR", error.body())
                return
            for event, item in zip(told, converted, strict=True):
                event["object"] = self._formed(asked.form, resource, item, headers)
                headers = False
            yield b"".join(_line(event["type"], event["object"]) for event in events)

    def _formed(self, form: Form, resource: Resource, item: Manifest, headers: bool) -> Manifest:
        if form.kind == "Partial":
            return partial(item)
        if form.kind != "Table":
            return item
        metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
        return table(resource, [item], metadata, self._now(), include=form.include, headers=headers)

    # one write

    def _read(self, call: Call, body: Any, warnings: list[str], known: Manifest | None = None) -> Manifest:
        target, validation = call.target, call.options().field_validation
        return decode_body(target.resource, target.namespace, body, validation, warnings, known)

    async def _patch(self, call: Call) -> Reply:
        """A patch, made in its own version, as the replacement of what it was made to."""
        target, warnings = call.target, list[str]()
        stored, current = await self._current_object(call)
        new = self._read(call, self._patched(call, current, call.patch()), warnings, current)
        self._objects.check(target.resource, new, current, [], target.subresource)
        new["metadata"].setdefault("resourceVersion", str(stored.version))
        return await self._out(call, await super().update(await self._inner(call, new)), warnings)

    async def _apply(self, call: Call) -> Reply:
        target = call.target
        if not target.resource.webhook:
            return await super()._apply(call)
        options, warnings = call.options(), list[str]()
        config = self._configuration(call, options, warnings)
        if self._objects.store.get(target.resource.type, target.namespace, target.name) is None:
            reply = await super()._apply(await self._inner(call, config, APPLY))
            return await self._out(call, reply, warnings)
        stored, current = await self._current_object(call)
        self._check_uid(target.resource, current, config)
        writer = self._objects.writer(target.resource, options, target.subresource)
        new = managed.apply(current, config, target.resource.schema, writer, force=options.force)
        _keep_other_versions(target.resource, current, new, writer)
        self._objects.check(target.resource, new, current, [], target.subresource)
        answer = await self._replaced(call, stored, new, options)
        return await self._out(call, self._reply(self._plain(call), answer, warnings))

    async def _replaced(self, call: Call, stored: Stored, new: Manifest, options: Options) -> Answer:
        target, storage = call.target, self._storage(call.target.resource)
        [converted] = await self._converter.convert(storage, [new])
        return await self._objects.update(
            storage,
            target.namespace,
            target.name,
            lambda _: decode(encode(converted)),
            options,
            subresource=target.subresource,
            version=str(stored.version),
            applied=True,
        )

    async def _current_object(self, call: Call) -> tuple[Stored, Manifest]:
        """An object as it is stored, and in the version of the request."""
        stored = self._objects.get(call.target.resource, call.target.namespace, call.target.name)
        [current] = await self._converter.convert(call.target.resource, [stored.copy()])
        return stored, current

    async def _modernise(self, call: Call) -> None:
        """Have the object be in the version that is stored now."""
        target = call.target
        stored = self._objects.store.get(target.resource.type, target.namespace, target.name)
        if not target.resource.webhook or stored is None:
            return
        [body] = await self._converter.convert(self._storage(target.resource), [stored.copy()])

        def renew(each: Manifest) -> None:
            if each == stored.body:
                each |= body
                for name in each.keys() - body.keys():
                    del each[name]

        self._objects.store.amend(target.resource.type, renew)

    # from the version of the request to the stored one, and back

    def _storage(self, resource: Resource) -> Resource:
        found = self._objects.registry.find(resource.group, resource.storage_version, resource.plural)
        if found is None:
            raise errors.internal(
                f"{resource.plural}: the stored version {resource.storage_version} is not served"
            )
        return found

    def _plain(self, call: Call) -> Call:
        """The same request for the stored version, answered in plain form."""
        if not call.target.resource.webhook:
            return call
        target = replace(call.target, resource=self._storage(call.target.resource))
        return replace(call, target=target, form=Form())

    async def _inner(self, call: Call, new: Manifest, media: str = _JSON) -> Call:
        """The same request with `new`, for the stored version."""
        plain = self._plain(call)
        [converted] = await self._converter.convert(plain.target.resource, [new])
        return replace(plain, media=media, body=encode(converted))

    async def _out(self, call: Call, reply: Reply, warnings: Sequence[str] = ()) -> Reply:
        """The answer in the version and form of the request."""
        resource = call.target.resource
        if not resource.webhook:
            return reply
        said = [*warnings, *reply.warnings]
        answered = decode(reply.body)
        if answered["kind"] != resource.kind:
            return Reply(reply.code, reply.body, said)
        [item] = await self._converter.convert(resource, [answered])
        stored = Stored(item, encode(item), int(item["metadata"].get("resourceVersion") or 0))
        return Reply(reply.code, render_one(resource, stored, call.form, self._now()), said)


def plain(asked: Request) -> Request:
    """A watch whose events are converted afterwards; then comes its form."""
    return replace(asked, form=Form()) if asked.target.resource.webhook else asked


def _is_converted(call: Call) -> bool:
    """Whether the request is in another version than the one that is stored."""
    resource = call.target.resource
    return bool(resource.webhook) and resource.version != resource.storage_version


def _keep_other_versions(
    resource: Resource, current: Manifest, new: Manifest, writer: managed.Writer
) -> None:
    """What others own in other versions, and what this version has no place for, stays theirs."""
    mine, here = writer.owner("Apply", ()).identity, nodes(current, resource.schema).keys()
    kept = {owner.identity: owner for owner in managed.owners(new)}
    for owner in managed.owners(current):
        if owner.api_version != writer.api_version and owner.identity != mine:
            left = kept.get(owner.identity)
            paths = (owner.paths - here) | (left.paths if left else frozenset())
            kept[owner.identity] = replace(owner, paths=paths)
    new["metadata"]["managedFields"] = managed.entries(kept.values())


def _line(change: str, body: Manifest) -> bytes:
    return encode({"type": change, "object": body}) + b"\n"
