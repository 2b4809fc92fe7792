"""The strategies of the built-in kinds."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.crd.crd import CRD
from elasticjob.devcluster.server.kinds.events import (
    check_event,
    check_new_event,
    check_new_event_update,
    default_event,
)
from elasticjob.devcluster.server.kinds.pods import check_pod_spec, default_template, pod_strategy
from elasticjob.devcluster.server.kinds.roles import ROLES
from elasticjob.devcluster.server.kinds.services import service_strategy
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import file_name_problem, missing, plain, unsupported, wrong
from elasticjob.devcluster.server.model.selectors import label_selector, matches_labels
from elasticjob.devcluster.server.model.store import Manifest, Store, Type
from elasticjob.devcluster.server.model.strategy import Strategy, immutable, put
from elasticjob.devcluster.server.schema.expressions import CompileError, condition

PROTECTION = "kubernetes.io/pvc-protection"
_SERVICES = Type("", "services")
_LOOKED_UP = {
    "ServiceAccount": Type("", "serviceaccounts"),
    "PriorityClass": Type("scheduling.k8s.io", "priorityclasses"),
}


def _start_namespace(namespace: Manifest) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _default_namespace(namespace: Manifest) -> None:
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


_TYPED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


_MOST_DATA = 1024 * 1024


def _check_keys(holder: Manifest) -> Iterator[Cause]:
    """Keys become names of files where a volume is made of them; all values together have a limit."""
    plain = sum(len(value.encode()) for value in (holder.get("data") or {}).values())
    if plain + sum(len(value) for value in (holder.get("binaryData") or {}).values()) > _limit(holder):
        yield Cause("data", f"Too long: may not be more than {_MOST_DATA} bytes", "FieldValueTooLong")
    for member in ("data", "binaryData"):
        for name in holder.get(member) or ():
            if problem := file_name_problem(name):
                yield wrong(f"{member}[{name}]", name, problem)


def _limit(holder: Manifest) -> int:
    """The size limit of the data; base64 makes the values of a Secret a third longer."""
    return _MOST_DATA * 4 // 3 if holder["kind"] == "Secret" else _MOST_DATA


def _check_config_map_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_keys(new)
    yield from _check_frozen_data(new, old)


def _check_secret(secret: Manifest) -> Iterator[Cause]:
    yield from _check_keys(secret)
    for name in _TYPED.get(secret.get("type", ""), ()):
        if name not in (secret.get("data") or {}):
            yield missing(f"data[{name}]")


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


def _default_claim(claim: Manifest) -> None:
    put(claim.setdefault("spec", {}), volumeMode="Filesystem")


def _start_claim(claim: Manifest) -> None:
    claim["status"] = {"phase": "Pending"}
    held = claim["metadata"].get("finalizers") or []
    claim["metadata"]["finalizers"] = [*held, *(() if PROTECTION in held else (PROTECTION,))]


def _check_claim_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """Of a claim's spec its request may grow, and it may be bound."""
    yield from _check_claim(new)
    if _frozen_claim(new["spec"]) != _frozen_claim(old["spec"]):
        why = (
            "Forbidden: spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        yield Cause("spec", why, "FieldValueForbidden")


def _frozen_claim(spec: Manifest) -> Manifest:
    return {name: value for name, value in spec.items() if name not in _MUTABLE_CLAIM}


_MUTABLE_CLAIM = ("resources", "volumeName", "volumeAttributesClassName")


def _check_claim(claim: Manifest) -> Iterator[Cause]:
    if not claim["spec"].get("accessModes"):
        yield missing("spec.accessModes", "at least 1 access mode is required")
    if not ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage"):
        yield missing("spec.resources[storage]")


def _check_lease(lease: Manifest) -> Iterator[Cause]:
    duration = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")


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
    for index, each in enumerate(webhook.get("matchConditions") or ()):
        expression = each.get("expression") or ""
        try:
            condition(expression)
        except CompileError as error:
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
        yield from _check_choices(webhook, path)
        yield from _check_conditions(webhook, path)
        client = webhook.get("clientConfig") or {}
        if bool(client.get("url")) == bool(client.get("service")):
            yield missing(f"{path}.clientConfig", "exactly one of url or service is required")
        elif not client.get("url", "https://").startswith("https://"):
            why = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            yield wrong(f"{path}.clientConfig.url", client["url"].partition(":")[0], why)
        if not webhook.get("admissionReviewVersions"):
            yield missing(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
        elif not {"v1", "v1beta1"} & set(webhook["admissionReviewVersions"]):
            why = "must include at least one of v1, v1beta1"
            yield wrong(f"{path}.admissionReviewVersions", webhook["admissionReviewVersions"], why)


def _check_choices(webhook: Manifest, path: str) -> Iterator[Cause]:
    if webhook.get("failurePolicy") not in ("Fail", "Ignore"):
        yield unsupported(f"{path}.failurePolicy", webhook.get("failurePolicy"), ["Fail", "Ignore"])
    if not webhook.get("sideEffects"):
        yield missing(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif webhook["sideEffects"] not in ("None", "NoneOnDryRun"):
        yield unsupported(f"{path}.sideEffects", webhook["sideEffects"], ["None", "NoneOnDryRun"])
    seconds = webhook.get("timeoutSeconds") or 0
    if not 0 < seconds <= 30:
        yield wrong(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")


def _default_workload(workload: Manifest) -> None:
    put(workload.setdefault("spec", {}), replicas=1)
    default_template(workload)


def _default_stateful_set(workload: Manifest) -> None:
    _default_workload(workload)
    spec = workload["spec"]
    put(
        spec,
        podManagementPolicy="OrderedReady",
        revisionHistoryLimit=10,
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
        updateStrategy={},
    )
    put(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        put(spec["updateStrategy"], rollingUpdate={"partition": 0})


def _default_job(job: Manifest) -> None:
    default_template(job)
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec |= {"completions": 1, "parallelism": 1}
    put(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="TerminatingOrFailed",
    )


def _check_job(job: Manifest) -> Iterator[Cause]:
    template = job["spec"].get("template") or {}
    yield from check_pod_spec(template.get("spec") or {}, "spec.template.spec")
    if (template.get("spec") or {}).get("restartPolicy") == "Always":
        yield missing("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _start_status(item: Manifest) -> None:
    item["status"] = {}


def _default_deployment(deployment: Manifest) -> None:
    _default_workload(deployment)
    put(
        deployment["spec"],
        progressDeadlineSeconds=600,
        revisionHistoryLimit=10,
        strategy={},
    )
    strategy = deployment["spec"]["strategy"]
    put(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        put(strategy, rollingUpdate={})
        put(strategy["rollingUpdate"], maxSurge="25%", maxUnavailable="25%")


def _check_workload(workload: Manifest) -> Iterator[Cause]:
    spec = workload["spec"]
    template = spec.get("template") or {}
    if spec.get("replicas", 0) < 0:
        yield wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    if not spec.get("selector"):
        yield missing("spec.selector")
    labels = (template.get("metadata") or {}).get("labels")
    if not spec.get("selector") or not matches_labels(label_selector(spec["selector"]), labels):
        yield wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from check_pod_spec(template.get("spec") or {}, "spec.template.spec")


def _check_deployment(deployment: Manifest) -> Iterator[Cause]:
    yield from _check_workload(deployment)
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] not in ("Recreate", "RollingUpdate"):
        shown = plain({"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")})
        known = 'supported values: "Recreate", "RollingUpdate"'
        yield Cause("spec.strategy", f"Unsupported value: {shown}: {known}", "FieldValueNotSupported")
    elif strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
        why = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        yield Cause("spec.strategy.rollingUpdate", why, "FieldValueForbidden")


def _check_deployment_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_deployment(new)
    yield from immutable(old["spec"].get("selector"), new["spec"].get("selector"), "spec.selector")


def _check_workload_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_workload(new)
    yield from immutable(old["spec"].get("selector"), new["spec"].get("selector"), "spec.selector")


def _start_ingress(ingress: Manifest) -> None:
    """Ingresses are stored and shown; nothing here answers to one."""
    ingress["status"] = {"loadBalancer": {}}


def _default_policy(policy: Manifest) -> None:
    spec = policy.setdefault("spec", {})
    put(spec, policyTypes=["Ingress", *(["Egress"] if spec.get("egress") else [])])
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            put(port, protocol="TCP")


_WORKLOAD: Mapping[str, Any] = {
    "check": _check_workload,
    "check_update": _check_workload_update,
    "generation": True,
}
_WEBHOOKS = Strategy(_default_webhooks, check=_check_webhooks, generation=True)
_ADMISSION = "admissionregistration.k8s.io"


def builtin_strategies(store: Store) -> dict[tuple[str, str], Strategy]:
    """(group, kind) → strategy; kinds without one only have their schema."""

    def addresses() -> Iterator[str]:
        return (service.body["spec"].get("clusterIP", "") for service in store.every(_SERVICES))

    def lookup(kind: str, namespace: str, name: str) -> Manifest | None:
        found = store.get(_LOOKED_UP[kind], namespace, name)
        return found.body if found else None

    return {
        ("", "Pod"): pod_strategy(lookup),
        ("", "Service"): service_strategy(addresses),
        ("", "Namespace"): Strategy(_default_namespace, start=_start_namespace),
        ("", "Node"): Strategy(check=_check_node, keeps_status=True),
        ("", "ConfigMap"): Strategy(check=_check_keys, check_update=_check_config_map_update),
        ("", "Secret"): Strategy(_default_secret, check=_check_secret, check_update=_check_secret_update),
        ("", "PersistentVolumeClaim"): Strategy(
            _default_claim, _start_claim, _check_claim, _check_claim_update
        ),
        ("apps", "Deployment"): Strategy(
            _default_deployment,
            _start_status,
            _check_deployment,
            _check_deployment_update,
            generation=True,
        ),
        ("apps", "ReplicaSet"): Strategy(_default_workload, **_WORKLOAD),
        ("apps", "StatefulSet"): Strategy(_default_stateful_set, **_WORKLOAD),
        ("apps", "DaemonSet"): Strategy(default_template, **_WORKLOAD),
        ("batch", "Job"): Strategy(_default_job, _start_status, _check_job, generation=True),
        ("", "Event"): Strategy(default_event, check=check_event),
        ("events.k8s.io", "Event"): Strategy(
            default_event, check=check_new_event, check_update=check_new_event_update
        ),
        ("coordination.k8s.io", "Lease"): Strategy(check=_check_lease, needs_version=True),
        ("networking.k8s.io", "Ingress"): Strategy(start=_start_ingress, generation=True),
        ("networking.k8s.io", "NetworkPolicy"): Strategy(_default_policy, generation=True),
        ("policy", "PodDisruptionBudget"): Strategy(generation=True),
        **ROLES,
        (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
        (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
        ("apiextensions.k8s.io", "CustomResourceDefinition"): CRD,
    }
