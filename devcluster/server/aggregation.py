"""ClusterRoles that gather the rules of others, chosen by labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elasticjob.devcluster.server import managed
from elasticjob.devcluster.server.collector import OPTIONS
from elasticjob.devcluster.server.objects import Objects
from elasticjob.devcluster.server.selectors import label_selector, matches_labels
from elasticjob.devcluster.server.store import Event, Manifest, Type, decode, encode
from elasticjob.devcluster.server.worker import Worker

_ROLES = Type("rbac.authorization.k8s.io", "clusterroles")
_OPTIONS = replace(OPTIONS, manager="clusterrole-aggregation-controller", force=True)


def gather(role: Manifest, every: Iterable[Manifest]) -> list[Manifest]:
    """The rules of all roles that one chooses: selector by selector, by name, each rule once."""
    others = sorted(
        (each for each in every if each["metadata"]["name"] != role["metadata"]["name"]),
        key=lambda each: str(each["metadata"]["name"]),
    )
    found: list[Manifest] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        chosen = label_selector(selector)
        for other in others:
            if matches_labels(chosen, other["metadata"].get("labels")):
                found += [rule for rule in other.get("rules") or () if rule not in found]
    return found


class Aggregation:
    """Follows the store; gathers anew whenever any ClusterRole has changed."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._worker = Worker(self._handle)
        objects.store.listen(self._follow)

    async def run(self) -> None:
        await self._worker.run()

    def _follow(self, type_: Type, _: Event) -> None:
        if type_ == _ROLES:
            for each in self._objects.store.every(_ROLES):
                if each.body.get("aggregationRule"):
                    self._worker.add(each.metadata["name"])

    async def _handle(self, name: str) -> None:
        store = self._objects.store
        role = store.get(_ROLES, "", name)
        if role is None or not role.body.get("aggregationRule"):
            return
        rules = gather(role.body, (each.body for each in store.every(_ROLES)))
        if rules != (role.body.get("rules") or []):
            await self._apply(name, rules)

    async def _apply(self, name: str, rules: list[Manifest]) -> None:
        resource = self._objects.registry.of_type(_ROLES)
        assert resource is not None, "cluster roles are always served"
        config: Manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
        }
        config |= {"rules": rules} if rules else {}
        writer = self._objects.writer(resource, _OPTIONS)

        def compute(old: Manifest) -> Manifest:
            return managed.apply(old, decode(encode(config)), resource.schema, writer, force=True)

        await self._objects.update(resource, "", name, compute, _OPTIONS, applied=True)
