"""Creates the service account `default` and the ConfigMap with the cluster's CA in every namespace."""

from __future__ import annotations

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Namespace, ServiceAccount

MANAGER = "devcluster-accounts"
ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"


class Accounts:
    """Writes both into each namespace, and the account again when it was deleted."""

    def __init__(self, client: Client, namespaces: Cache[Namespace], ca: str) -> None:
        self._client, self._namespaces, self._ca = client, namespaces, ca

    def controller(self) -> Controller:
        watches = ((SERVICE_ACCOUNT, _namespace_of),)
        return Controller("accounts", self.reconcile, for_=NAMESPACE, watches=watches)

    async def reconcile(self, key: Key) -> Result:
        """One namespace has its account and its authority."""
        namespace = self._namespaces.get(key)
        if (
            namespace is None
            or namespace.metadata.deletion_timestamp
            or namespace.status.phase == "Terminating"
        ):
            return Result.done()
        account = {"metadata": {"name": ACCOUNT, "namespace": key.name}}
        await self._client.apply(SERVICE_ACCOUNT, account, manager=MANAGER)
        authority = {"metadata": {"name": ROOT_CA, "namespace": key.name}, "data": {"ca.crt": self._ca}}
        await self._client.apply(CONFIG_MAP, authority, manager=MANAGER)
        return Result.done()


def _namespace_of(account: ServiceAccount) -> list[Key]:
    """The namespace of a default account; other accounts are ignored."""
    return [Key("", account.metadata.namespace)] if account.metadata.name == ACCOUNT else []
