"""Subresources with objects or rules of their own: scale, binding, eviction, finalize."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from elasticjob.devcluster.server.crd.scaling import scale_of, with_size
from elasticjob.devcluster.server.http.call import APPLY, JSON_PATCH, PATCHES, Call
from elasticjob.devcluster.server.http.verbs import Reply, check_uid
from elasticjob.devcluster.server.kinds.pods import bind, with_condition
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import Answer, Deletion
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.registry import Scale
from elasticjob.devcluster.server.model.store import Manifest, encode
from elasticjob.devcluster.server.write import deleting, updating
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.jsonbody import parse
from elasticjob.devcluster.server.write.patches import go_name, json_patch, merge_patch


def _unappliable(scale: Any) -> errors.StatusError:
    """Why the scale of a custom resource cannot be applied: the real server takes it for one itself."""
    metadata = (scale if isinstance(scale, dict) else {}).get("metadata") or {}
    place = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    why = "request to convert CR to an invalid group/version: autoscaling/v1"
    message = f"failed to convert new object ({place}; autoscaling/v1, Kind=Scale) to proper version: {why}"
    return errors.StatusError(500, "", message)


class Subresources:
    """Answers requests to them."""

    def __init__(self, core: Core, now: Callable[[], datetime]) -> None:
        self._core = core
        self._now = now

    # scale

    async def get_scale(self, call: Call) -> Reply:
        target = call.target
        stored = self._core.get(target.resource, target.namespace, target.name)
        return Reply(200, encode(scale_of(target.resource, stored.body)))

    async def put_scale(self, call: Call) -> Reply:
        return await self._set_scale(call, lambda _: call.manifest())

    async def patch_scale(self, call: Call) -> Reply:
        if call.media not in PATCHES:
            raise errors.unsupported_patch()
        change = call.manifest() if call.media == APPLY else parse(call.body)
        if call.media == APPLY and call.target.resource.custom:
            raise _unappliable(change)
        act = json_patch if call.media == JSON_PATCH else merge_patch
        return await self._set_scale(call, lambda scale: act(scale, change))

    async def _set_scale(self, call: Call, compute: Callable[[Manifest], Any]) -> Reply:
        target = call.target
        resource = target.resource
        scale = resource.scale or Scale("", "")
        stored = self._core.get(resource, target.namespace, target.name)
        asked = compute(scale_of(resource, stored.body, lenient=True))
        replicas = self._requested_size(call, asked)
        metadata = asked.get("metadata") or {}
        check_uid(resource, stored.metadata, metadata.get("uid"))
        version = str(metadata.get("resourceVersion") or "")
        pinned = version if version != str(stored.version) or call.method == "PUT" else ""
        answer = await updating.update(
            self._core,
            resource,
            target.namespace,
            target.name,
            lambda old: with_size(old, scale.replicas, replicas),
            call.options(),
            subresource="scale",
            version=pinned,
        )
        return Reply(200, encode(scale_of(resource, answer.stored.body)), answer.warnings)

    def _requested_size(self, call: Call, scale: Any) -> int:
        """The size that a Scale asks for, or why it cannot be asked."""
        replicas = ((scale if isinstance(scale, dict) else {}).get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            why = (
                f"json: cannot unmarshal {go_name(replicas)} into Go struct field "
                "ScaleSpec.spec.replicas of type int32"
            )
            raise errors.bad_patch(why) if call.method == "PATCH" else errors.undecodable("Scale", "v1", why)
        if replicas < 0 and not call.target.resource.custom:
            cause = wrong("spec.replicas", replicas, "must be greater than or equal to 0")
            raise errors.invalid("autoscaling", "Scale", call.target.name, [cause])
        return replicas

    # pods

    async def bind(self, call: Call) -> Reply:
        """POST pods/NAME/binding: put a pod on a node, once."""
        target, body = call.target, call.manifest()
        node = ((body if isinstance(body, dict) else {}).get("target") or {}).get("name")
        if not node:
            raise errors.invalid("", "Binding", target.name, [wrong("target.name", "", "must name a node")])

        def compute(pod: Manifest) -> Manifest:
            bound = pod["spec"].get("nodeName")
            if bound:
                why = f'pod {target.name} is already assigned to node "{bound}"'
                raise errors.conflict("", "pods/binding", target.name, why)
            if pod["metadata"].get("deletionTimestamp"):
                why = f"pod {target.name} is being deleted, cannot be assigned to a host"
                raise errors.conflict("", "pods/binding", target.name, why)
            return bind(pod, node, self._now())

        await updating.update(
            self._core,
            target.resource,
            target.namespace,
            target.name,
            compute,
            call.options(),
            subresource="binding",
        )
        return Reply(201, encode(SUCCESS))

    async def evict(self, call: Call) -> Reply:
        """POST pods/NAME/eviction: a deletion that asks politely (disruption budgets are not kept here)."""
        target, body = call.target, call.manifest()
        options = (body if isinstance(body, dict) else {}).get("deleteOptions") or {}
        deletion = Deletion(options.get("gracePeriodSeconds"), options.get("propagationPolicy") or "")
        if not call.options().dry_run:
            await updating.update(
                self._core,
                target.resource,
                target.namespace,
                target.name,
                lambda pod: with_condition(pod, EVICTED, self._now()),
                call.options(),
                subresource="status",
            )
        await deleting.delete(
            self._core, target.resource, target.namespace, target.name, deletion, call.options()
        )
        return Reply(201, encode(SUCCESS))

    # namespaces

    async def finalize(self, call: Call) -> Reply:
        """PUT namespaces/NAME/finalize: set spec.finalizers, which ends a namespace when they are gone."""
        target, body = call.target, call.manifest()
        spec = {
            "finalizers": ((body if isinstance(body, dict) else {}).get("spec") or {}).get("finalizers") or []
        }
        answer: Answer = await updating.update(
            self._core,
            target.resource,
            "",
            target.name,
            lambda old: old | {"spec": spec},
            call.options(),
            subresource="finalize",
        )
        return Reply(200, answer.stored.raw)


EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
