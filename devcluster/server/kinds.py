"""The strategies of the built-in kinds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.crd import CRD
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import file_name_problem, missing, wrong
from elasticjob.devcluster.server.pods import POD, check_pod_spec, default_template
from elasticjob.devcluster.server.services import service_strategy
from elasticjob.devcluster.server.store import Manifest, Store, Type
from elasticjob.devcluster.server.strategy import Strategy, immutable, put
from elasticjob.kube.cel import CelSyntaxError, compiled

_SERVICES = Type("", "services")


def _start_namespace(namespace: Manifest) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    namespace["metadata"]["labels"] = {
        **(namespace["metadata"].get("labels") or {}),
        "kubernetes.io/metadata.name": namespace["metadata"].get("name", ""),
    }


def _default_secret(secret: Manifest) -> None:
    put(secret, type="Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _check_keys(holder: Manifest) -> Iterator[Cause]:
    """Keys become names of files where a volume is made of them."""
    for member in ("data", "binaryData"):
        for name in holder.get(member) or ():
            if problem := file_name_problem(name):
                yield wrong(f"{member}[{name}]", name, problem)


def _check_config_map_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_keys(new)
    yield from _check_frozen_data(new, old)


def _check_secret(secret: Manifest) -> Iterator[Cause]:
    yield from _check_keys(secret)
    for name, value in (secret.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            yield wrong(f"data[{name}]", value, "illegal base64 data")


def _check_frozen_data(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """ConfigMaps and Secrets marked immutable stay as they are."""
    if old.get("immutable"):
        for name in ("data", "binaryData", "immutable"):
            if new.get(name) != old.get(name):
                yield Cause(
                    name, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden"
                )


def _check_secret_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_secret(new)
    yield from immutable(old.get("type"), new.get("type"), "type")
    yield from _check_frozen_data(new, old)


def _check_node(node: Manifest) -> Iterator[Cause]:
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        if not taint.get("key"):
            yield missing(f"spec.taints[{index}].key")


def _start_claim(claim: Manifest) -> None:
    put(claim.setdefault("spec", {}), volumeMode="Filesystem")
    claim["status"] = {"phase": "Pending"}


def _check_claim(claim: Manifest) -> Iterator[Cause]:
    if not claim["spec"].get("accessModes"):
        yield missing("spec.accessModes", "at least 1 access mode is required")
    if not ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage"):
        yield missing("spec.resources[storage]")


def _check_role_reference(new: Manifest, old: Manifest) -> Iterator[Cause]:
    if new.get("roleRef") != old.get("roleRef"):
        yield wrong("roleRef", new.get("roleRef"), "cannot change roleRef")


def _check_role(role: Manifest) -> Iterator[Cause]:
    for index, rule in enumerate(role.get("rules") or ()):
        if not rule.get("verbs"):
            yield missing(f"rules[{index}].verbs", "verbs must contain at least one value")


def _check_lease(lease: Manifest) -> Iterator[Cause]:
    duration = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")


def _default_binding(binding: Manifest) -> None:
    put(binding.get("roleRef") or {}, apiGroup="rbac.authorization.k8s.io")
    for subject in binding.get("subjects") or ():
        put(
            subject,
            **({} if subject.get("kind") == "ServiceAccount" else {"apiGroup": "rbac.authorization.k8s.io"}),
        )


def _default_webhooks(configuration: Manifest) -> None:
    for webhook in configuration.get("webhooks") or ():
        put(
            webhook,
            failurePolicy="Fail",
            matchPolicy="Equivalent",
            namespaceSelector={},
            objectSelector={},
            timeoutSeconds=10,
        )
        for rule in webhook.get("rules") or ():
            put(rule, scope="*")
        if service := (webhook.get("clientConfig") or {}).get("service"):
            put(service, port=443)
        if configuration["kind"].startswith("Mutating"):
            put(webhook, reinvocationPolicy="Never")


def _check_conditions(webhook: Manifest, path: str) -> Iterator[Cause]:
    for index, condition in enumerate(webhook.get("matchConditions") or ()):
        expression = condition.get("expression") or ""
        try:
            compiled(expression)
        except CelSyntaxError as error:
            yield wrong(
                f"{path}.matchConditions[{index}].expression", expression, f"compilation failed: {error}"
            )


def _check_webhooks(configuration: Manifest) -> Iterator[Cause]:
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        if len((webhook.get("name") or "").split(".")) < 3:
            yield wrong(
                f"{path}.name",
                webhook.get("name", ""),
                "should be a domain with at least three segments separated by dots",
            )
        yield from _check_conditions(webhook, path)
        if not webhook.get("admissionReviewVersions"):
            yield missing(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            yield missing(f"{path}.sideEffects", 'must specify one of "None", "NoneOnDryRun"')
        client = webhook.get("clientConfig") or {}
        if bool(client.get("url")) == bool(client.get("service")):
            yield missing(f"{path}.clientConfig", "exactly one of url or service is required")


def _default_workload(workload: Manifest) -> None:
    put(workload.setdefault("spec", {}), replicas=1)
    default_template(workload)


def _default_deployment(deployment: Manifest) -> None:
    _default_workload(deployment)
    put(
        deployment["spec"],
        progressDeadlineSeconds=600,
        revisionHistoryLimit=10,
        strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    )


def _check_workload(workload: Manifest) -> Iterator[Cause]:
    template = workload["spec"].get("template") or {}
    yield from check_pod_spec(template.get("spec") or {}, "spec.template.spec")


def _check_workload_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_workload(new)
    yield from immutable(old["spec"].get("selector"), new["spec"].get("selector"), "spec.selector")


def _default_policy(policy: Manifest) -> None:
    spec = policy.setdefault("spec", {})
    put(spec, policyTypes=["Ingress", *(["Egress"] if spec.get("egress") else [])])


_WORKLOAD: Mapping[str, Any] = {
    "check": _check_workload,
    "check_update": _check_workload_update,
    "generation": True,
}
_WEBHOOKS = Strategy(_default_webhooks, check=_check_webhooks, generation=True)
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"


def builtin_strategies(store: Store) -> dict[tuple[str, str], Strategy]:
    """(group, kind) → strategy; kinds without one only have their schema."""

    def addresses() -> Iterator[str]:
        return (service.body["spec"].get("clusterIP", "") for service in store.every(_SERVICES))

    return {
        ("", "Pod"): POD,
        ("", "Service"): service_strategy(addresses),
        ("", "Namespace"): Strategy(start=_start_namespace),
        ("", "Node"): Strategy(check=_check_node, keeps_status=True),
        ("", "ConfigMap"): Strategy(check=_check_keys, check_update=_check_config_map_update),
        ("", "Secret"): Strategy(_default_secret, check=_check_secret, check_update=_check_secret_update),
        ("", "PersistentVolumeClaim"): Strategy(start=_start_claim, check=_check_claim),
        ("apps", "Deployment"): Strategy(_default_deployment, **_WORKLOAD),
        ("apps", "ReplicaSet"): Strategy(_default_workload, **_WORKLOAD),
        ("apps", "StatefulSet"): Strategy(_default_workload, **_WORKLOAD),
        ("apps", "DaemonSet"): Strategy(default_template, **_WORKLOAD),
        ("batch", "Job"): Strategy(default_template, check=_check_workload, generation=True),
        ("coordination.k8s.io", "Lease"): Strategy(check=_check_lease, needs_version=True),
        ("networking.k8s.io", "NetworkPolicy"): Strategy(_default_policy, generation=True),
        ("policy", "PodDisruptionBudget"): Strategy(generation=True),
        (_RBAC, "Role"): Strategy(check=_check_role),
        (_RBAC, "ClusterRole"): Strategy(check=_check_role),
        (_RBAC, "RoleBinding"): Strategy(_default_binding, check_update=_check_role_reference),
        (_RBAC, "ClusterRoleBinding"): Strategy(_default_binding, check_update=_check_role_reference),
        (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
        (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
        ("apiextensions.k8s.io", "CustomResourceDefinition"): CRD,
    }
