"""The Helm chart: it is what `config/` is, and Helm installs, upgrades and uninstalls it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from elasticjob import __version__
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.brain.main import compose as compose_brain
from elasticjob.brain.plans import manifest as plan_of
from elasticjob.brain.settings import Settings as BrainSettings
from elasticjob.brain.settings import Source
from elasticjob.brain.store import Record, open_store
from elasticjob.controllers.elasticjob.master import NOBODY
from elasticjob.controllers.main import compose, scrapers_of, webhooks_of
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.errors import ApiError, Forbidden
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD, LEASE, MUTATING_WEBHOOKS, POD, VALIDATING_WEBHOOKS
from lab.build.jobs import role
from lab.clusters.accounts import ACCOUNT
from lab.clusters.installed.helm import CHART, KUBERNETES, SYSTEM, HelmFailed, helm, program, templated
from lab.clusters.namespaces import new_namespace
from lab.clusters.served import Served
from lab.paths import ROOT
from lab.waiting import until
from tests.kit.registry import crane, registry
from tests.kit.traps.operators import running

CONFIG: Final = ROOT / "config"
with_helm = pytest.mark.skipif(program() is None, reason="no helm: hack/kube-binaries helm builds it")
DEPLOYMENT: Kind[Manifest] = Kind("apps", "v1", "Deployment", "deployments", dict)
VALUES: Final = {
    "brain": ("brain",),
    "diengine": ("diServer",),
    "certmanager": ("webhook.certManager",),
    "prometheus": ("metrics.podMonitor", "metrics.serviceMonitor", "metrics.rules"),
}
"""What has the chart bring the objects of a component of `config/`."""
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
ONLY_HELMS: Final = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
"""Labels of the chart's objects that those of `config/` do not have."""
NO_CRDS: Final = ("--set", "crds.enabled=false")
KEEP: Final = {"helm.sh/resource-policy": "keep"}

Objects = dict[tuple[str, str, str], Manifest]
QUOTAS = {"clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses", "priorityclasses"}
"""What is read of Kueue's quotas and of priorities in the whole cluster."""


def objects(text: str) -> Objects:
    """Return manifests by kind, namespace and name."""
    found = (each for each in yaml.load_all(text, yaml.CSafeLoader) if each)  # ten times as fast
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found
    }


def rendered(*flags: str, namespace: str = SYSTEM, crds: bool = False) -> Objects:
    """Return what a release consists of, by default without the CRDs: they are larger than all the rest."""
    return objects(templated(*flags, *(() if crds else NO_CRDS), namespace=namespace))


@with_helm
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
@pytest.mark.parametrize(
    "components",
    [(), ("certmanager",), ("brain", "diengine", "prometheus")],
    ids=["alone", "with cert-manager", "with Brain, di-server and Prometheus"],
)
def test_a_release_is_what_kustomize_installs(tmp_path: Path, components: tuple[str, ...]) -> None:
    overlay = {
        "resources": [os.path.relpath(CONFIG, tmp_path)],
        "components": [os.path.relpath(CONFIG / name, tmp_path) for name in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    command = ["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", str(tmp_path)]
    installed = objects(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    del installed["Namespace", "", SYSTEM]  # Helm makes it
    values = [value for name in components for value in VALUES[name]]
    found = rendered(*(word for value in values for word in ("--set", f"{value}.enabled=true")), crds=True)
    del found["Pod", SYSTEM, "elasticjob-test"]  # of `helm test`
    for manifest in found.values():
        for label in ONLY_HELMS:
            del manifest["metadata"]["labels"][label]
    for key, manifest in found.items():
        if key[0] == "CustomResourceDefinition":
            assert manifest["metadata"].pop("labels") == {"app.kubernetes.io/name": "elasticjob"}
        if key[0] in ("CustomResourceDefinition", "PersistentVolumeClaim"):
            assert manifest["metadata"].pop("annotations") == KEEP
    for each in (found, installed):
        container_of(each).get("env", []).sort(key=lambda variable: variable["name"])
    assert found == installed


def container_of(found: Objects, name: str = "elasticjob-operator", namespace: str = SYSTEM) -> Manifest:
    """Return the container of a Deployment."""
    (container,) = found["Deployment", namespace, name]["spec"]["template"]["spec"]["containers"]
    return dict(container)


@with_helm
def test_helm_finds_no_fault() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", *KUBERNETES, str(CHART))


@with_helm
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("brain.source=guesses", "at '/brain/source': value must be one of 'masters'"),
        ("resources.request.cpu=1", "at '/resources': additional properties 'request' not allowed"),
        ("brain.image.digest=1.0", "at '/brain/image/digest'"),
        ("imagePullSecrets[0]=registry", "at '/imagePullSecrets/0': got string, want object"),
        ("masters.nodeName=m1", "at '/masters': additional properties 'nodeName' not allowed"),
        ("brain.replicas=2", "brain.replicas is more than 1 with SQLite"),
        ("brain.source=prometheus", "brain.source is prometheus without a URL"),
        ("brain.prometheus=http://p:9090", "brain.prometheus has no effect: set brain.source to prometheus"),
        ("brain.share=fulfilment", "brain.share has no effect without Brain"),
        ("brain.postgresql=true,brain.storage.className=fast", "has no effect with PostgreSQL"),
        ("global.storageClass=fast", "global.storageClass has no effect: leave it out"),
        ("crds.kept=true", "at '/crds': additional properties 'kept' not allowed"),
        ("leaderElection.enabled=false", "replicas is more than 1 without leaderElection"),
        (
            "webhook.enabled=false,webhook.certManager.enabled=true",
            "webhook.certManager has no effect without webhooks",
        ),
        ("webhook.certManager.issuerRef.name=a", "webhook.certManager.issuerRef has no effect"),
        ("webhook.timeoutSeconds=31", "at '/webhook/timeoutSeconds': maximum: got 31, want 30"),
        ("networkPolicy.metricsFrom[0].a=b", "networkPolicy.metricsFrom has no effect"),
        ("podDisruptionBudget.minAvailable=2", "podDisruptionBudget.minAvailable is not below replicas"),
        ("image.registry=a.b,image.repository=c.d/e", "image.registry has no effect"),
        ("metrics.podMonitor.interval=often", "at '/metrics/podMonitor/interval'"),
    ],
)
def test_wrong_values_are_refused_by_name(given: str, why: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        rendered("--set", given)
    assert why in str(refused.value)


@with_helm
def test_values_reach_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "watchNamespace": "team-a",
        "trainerImage": "registry.local/trainer:1",
        "image.repository": "registry.local/operator",
        "scrapers[0].team": "monitoring",
        "gangScheduler": "second",
        "kueue.givesBack": "false",
        "replicas": "1",
        "webhook.failurePolicy": "Ignore",
        "webhook.timeoutSeconds": "3",
        "logging.format": "console",
        "logging.verbose": "true",
        "extraArgs[0]": "--concurrency=2",
    }
    flags = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    found = rendered(*flags, namespace="mine")
    deployment = found["Deployment", "mine", "elasticjob-operator"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "mine"))
    settings = Settings()
    assert (settings.namespace, settings.trainer_image) == ("team-a", "registry.local/trainer:1")
    assert (settings.webhook_service, settings.scrapers) == (
        "mine/elasticjob-webhooks",
        ({"team": "monitoring"},),
    )
    assert settings.gang_scheduler == "second"
    assert ("ClusterRole", "", settings.webhook_owner) in found
    assert container["image"].startswith("registry.local/operator:")
    assert deployment["replicas"] == 1
    assert (settings.webhook_failure_policy, settings.webhook_timeout) == ("Ignore", 3)
    assert {each.terms.failure_policy for each in webhooks_of(settings, Client(Config("https://a")))} == {
        "Ignore"
    }
    assert container["args"] == ["operator", "--log-format", "console", "--verbose", "--concurrency=2"]
    assert "PodDisruptionBudget" not in {kind for kind, *_ in found}  # it would stop every drain


PROGRAMS: Final = {
    "elasticjob-operator": "",
    "elasticjob-brain": "brain.",
    "elasticjob-di-server": "diServer.",
}
ALL: Final = ("--set", "brain.enabled=true,diServer.enabled=true", *NO_CRDS)
DIGEST: Final = f"sha256:{64 * 'a'}"
TOLERATION: Final = {"key": "pool", "operator": "Exists"}
AFFINITY: Final[Manifest] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
WHERE: Final = ("nodeSelector", "tolerations", "affinity", "priorityClassName")
OF_A_POD: Final[dict[str, Any]] = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [TOLERATION],
    "affinity": AFFINITY,
    "priorityClassName": "gold",
    "podSecurityContext": {"fsGroupChangePolicy": "OnRootMismatch", "runAsGroup": 7, "runAsNonRoot": None},
    "containerSecurityContext": {"readOnlyRootFilesystem": False},
    "podLabels": {"team": "a", "app.kubernetes.io/name": "not this"},
    "podAnnotations": {"scraped": "yes"},
    "serviceAccount": {"annotations": {"role": "reader"}},
    "extraEnv": [{"name": "HTTP_PROXY", "value": "http://proxy:3128"}],
}


def given(values: Manifest, folder: Path) -> tuple[str, str]:
    """Return the flags of a file of values."""
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    return ("--values", str(folder / "values.yaml"))


@with_helm
def test_each_program_has_its_own_values_of_pods(tmp_path: Path) -> None:
    pull = {"imagePullSecrets": [{"name": "ours"}], "global": {"imagePullSecrets": [{"name": "all"}]}}
    values = {**OF_A_POD, "brain": OF_A_POD, "diServer": OF_A_POD, **pull}
    found, plain = rendered(*ALL, *given(values, tmp_path)), rendered(*ALL)
    for name in PROGRAMS:
        template, before = (each["Deployment", SYSTEM, name]["spec"]["template"] for each in (found, plain))
        pod, container = template["spec"], container_of(found, name)
        assert pod["imagePullSecrets"] == [{"name": "all"}, {"name": "ours"}]
        assert {key: pod[key] for key in WHERE} == {key: OF_A_POD[key] for key in WHERE}
        asked = {"fsGroupChangePolicy": "OnRootMismatch", "runAsGroup": 7}
        assert pod["securityContext"] == _without(before["spec"]["securityContext"], "runAsNonRoot") | asked
        assert container["securityContext"]["readOnlyRootFilesystem"] is False
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert template["metadata"]["labels"] == before["metadata"]["labels"] | {"team": "a"}
        assert template["metadata"]["annotations"] == {"scraped": "yes"}
        assert found["ServiceAccount", SYSTEM, name]["metadata"]["annotations"] == {"role": "reader"}
        assert container["env"] == [*container_of(plain, name)["env"], *OF_A_POD["extraEnv"]]


def _without(given: Manifest, *names: str) -> Manifest:
    return {name: value for name, value in given.items() if name not in names}


@with_helm
@pytest.mark.parametrize(("user", "ids"), [(0, {}), (1000660000, {"runAsUser": 1000660000})])
def test_the_cluster_may_choose_the_user_of_all_pods(
    user: int, ids: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rendered(*ALL, "--set", f"userId={user},masters.podSecurityContext.supplementalGroups[0]=5")
    for name in PROGRAMS:
        security = found["Deployment", SYSTEM, name]["spec"]["template"]["spec"]["securityContext"]
        assert security.pop("runAsNonRoot") is True
        assert {value for key, value in security.items() if key != "seccompProfile"} == set(ids.values())
    asked = settings_of(container_of(found), monkeypatch).master_pod["securityContext"]
    mine = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), ids.get("runAsUser"))
    assert asked == mine | {"supplementalGroups": [5]}


def settings_of(container: Manifest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of an operator's container; the operator itself checks what is for masters."""
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "sys"))
    return Settings()


@with_helm
def test_masters_get_what_the_chart_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {
        name: OF_A_POD[name] for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    }
    pull = {"imagePullSecrets": [{"name": "registry"}]}
    security = {"containerSecurityContext": {"readOnlyRootFilesystem": None}}
    values = {"masters": where | pull | security, "scrapers": [{"team": "monitoring"}]}
    settings = settings_of(container_of(rendered(*ALL, *given(values, tmp_path))), monkeypatch)
    assert settings.master_pod == where | pull
    assert settings.master_security_context == {"readOnlyRootFilesystem": None}
    assert scrapers_of(settings) == ({"kubernetes.io/metadata.name": SYSTEM}, {"team": "monitoring"})


def test_the_user_of_masters_is_the_charts() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["userId"] == NOBODY
    assert f"ne $user {NOBODY}" in (CHART / "templates" / "_programs.tpl").read_text()


@with_helm
@pytest.mark.parametrize(
    ("flags", "operator", "brain", "trainer"),
    [
        ("image.tag=v2", "elasticjob/operator:v2", "elasticjob/brain:0.1.0", None),
        (
            f"image.digest={DIGEST},brain.image.digest={DIGEST}",
            f"elasticjob/operator@{DIGEST}",
            f"elasticjob/brain@{DIGEST}",
            None,
        ),
        (
            "global.imageRegistry=registry.local:5000,brain.image.repository=quay.local/brain",
            "registry.local:5000/elasticjob/operator:0.1.0",
            "quay.local/brain:0.1.0",
            "registry.local:5000/elasticjob/trainer:0.1.0",
        ),
        (
            "image.registry=registry.local,brain.image.registry=quay.local,brain.image.tag=v3",
            "registry.local/elasticjob/operator:0.1.0",
            "quay.local/elasticjob/brain:v3",
            None,
        ),
        (
            "global.imageRegistry=registry.local,trainerImage=mine/trainer:1",
            "registry.local/elasticjob/operator:0.1.0",
            "registry.local/elasticjob/brain:0.1.0",
            "mine/trainer:1",
        ),
    ],
)
def test_images_are_of_the_registry_and_the_digest(
    flags: str, operator: str, brain: str, trainer: str | None
) -> None:
    found = rendered(*ALL, "--set", flags)
    images = [container_of(found, name)["image"] for name in PROGRAMS]
    assert images == [operator, brain, operator]
    told = {each["name"]: each.get("value") for each in container_of(found)["env"]}
    assert told.get("ELASTICJOB_OPERATOR_TRAINER_IMAGE") == trainer


@with_helm
def test_a_value_with_nothing_behind_its_name_is_as_if_it_was_left_out(tmp_path: Path) -> None:
    """`podLabels:` and no more, as in a file of values whose lines are commented out, is null."""
    empty = ("podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity", "extraEnv")
    others = ("podSecurityContext", "containerSecurityContext", "extraArgs")
    values: Manifest = dict.fromkeys((*empty, *others, "commonLabels", "imagePullSecrets", "scrapers"))
    values |= {"global": {"imagePullSecrets": None}, "image": {"tag": None, "digest": None, "registry": None}}
    values |= {"brain": {"enabled": True, **dict.fromkeys((*empty, *others))}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    assert rendered("--values", str(file)) == rendered("--set", "brain.enabled=true")


@with_helm
def test_the_command_of_the_chart_s_readme_takes_all_images_from_the_registry() -> None:
    [flag] = re.findall(r"^helm install .*--set (\S+)$", (CHART / "README.md").read_text(), re.MULTILINE)
    found = rendered(*ALL, "--set", flag)
    told = {each["name"]: each.get("value") for each in container_of(found)["env"]}
    images = [container_of(found, name)["image"] for name in PROGRAMS]
    images.append(told.get("ELASTICJOB_OPERATOR_TRAINER_IMAGE", "elsewhere"))
    assert [image for image in images if not image.startswith("REGISTRY/elasticjob/")] == []


@with_helm
def test_a_chart_that_contains_this_one_has_globals_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "elasticjob").symlink_to(CHART)
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: platform, version: 1.0.0}")
    values = {
        "global": {"storageClass": "fast", "imageRegistry": "registry.local"},
        "elasticjob": {"crds": False},
    }
    found = objects(templated(*given(values, tmp_path), chart=tmp_path))
    assert container_of(found)["image"] == "registry.local/elasticjob/operator:0.1.0"


@with_helm
def test_without_cluster_wide_rights_only_nodes_and_webhooks_are_left() -> None:
    found = rendered(*ALL, "--set", "watchNamespace=team-a")
    wide = {name: rules(found, "ClusterRole", "", name) for kind, _, name in found if kind == "ClusterRole"}
    assert wide == {
        "elasticjob-operator-cluster-team-a": {
            "nodes",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "clusterroles",
            *QUOTAS,
        },
        "elasticjob-brain-cluster-team-a": {"nodes"},
        "elasticjob-di-server-cluster-team-a": {"nodes"},
    }
    without = rendered("--set", "watchNamespace=team-a,webhook.enabled=false")
    assert rules(without, "ClusterRole", "", "elasticjob-operator-nodes-team-a") == {"nodes", *QUOTAS}
    owner = ("ClusterRole", "", "elasticjob-operator-cluster-team-a")
    assert owner not in without  # an upgrade to these values ends the webhooks that it owns
    assert ("Service", SYSTEM, "elasticjob-webhooks") not in without
    told = {each["name"]: each.get("value") for each in container_of(without)["env"]}
    assert told["ELASTICJOB_OPERATOR_WEBHOOKS"] == "false"
    assert "ELASTICJOB_OPERATOR_WEBHOOK_OWNER" not in told
    none = rendered("--set", "rbac.create=false,brain.enabled=true,serviceAccount.name=mine")
    assert [key for key in none if "Role" in key[0]] == []
    pod = none["Deployment", SYSTEM, "elasticjob-operator"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"


def rules(found: Objects, *key: str) -> set[str]:
    """Return the resources of a role."""
    kind, namespace, name = key
    return {each for rule in found[kind, namespace, name]["rules"] for each in rule["resources"]}


METRICS: Final[Manifest] = {
    "podMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "1m"},
    "serviceMonitor": {"enabled": True, "namespace": "monitoring"},
    "rules": {"enabled": True, "runbookBaseUrl": "https://docs.local/runbooks/"},
    "dashboards": {"enabled": True, "namespace": "grafana", "labels": {"grafana_dashboard": "yes"}},
}


@with_helm
def test_monitoring_is_found_where_it_is_looked_for(tmp_path: Path) -> None:
    values = {"metrics": METRICS, "commonLabels": {"team": "ml"}}
    found = rendered(*given(values, tmp_path))
    masters = found["PodMonitor", SYSTEM, "elasticjob-masters"]
    assert masters["metadata"]["labels"].items() >= {"release": "prom", "team": "ml"}.items()
    assert [each["interval"] for each in masters["spec"]["podMetricsEndpoints"]] == ["1m"]
    operator = found["ServiceMonitor", "monitoring", "elasticjob-operator"]
    assert operator["spec"]["namespaceSelector"] == {"matchNames": [SYSTEM]}
    source = yaml.safe_load((CONFIG / "prometheus" / "rules.yaml").read_text())
    alerts = [alert for group in source["spec"]["groups"] for alert in group["rules"] if "alert" in alert]
    for alert in alerts:
        alert["annotations"]["runbook_url"] = f"https://docs.local/runbooks/{alert['alert']}"
    assert found["PrometheusRule", SYSTEM, "elasticjob"]["spec"] == source["spec"]
    for path in (CONFIG / "grafana").glob("*.json"):
        board = found["ConfigMap", "grafana", f"elasticjob-dashboard-{path.stem}"]
        assert board["data"] == {path.name: path.read_text()}
        assert board["metadata"]["labels"]["grafana_dashboard"] == "yes"
        assert board["metadata"]["annotations"] == {"grafana_folder": "elasticjob"}


@with_helm
def test_other_names_reach_every_object_that_is_named_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--set", "fullnameOverride=training,nameOverride=trainer")
    text = templated(*ALL, *flags, namespace="sys")
    lines = (line for line in text.splitlines() if "helm.sh/chart" not in line)
    written = "\n".join(line.partition("#")[0] for line in lines)
    assert set(re.findall(r"\belasticjob-[\w-]+", written.replace('"elasticjob-brain"', "a Secret"))) == set()
    assert "io/name: elasticjob" not in written
    settings = settings_of(container_of(objects(text), "training-operator", "sys"), monkeypatch)
    assert (settings.lease, settings.webhook_owner) == ("training-operator", "training-operator-cluster")
    assert settings.webhook_service == "sys/training-webhooks"
    assert settings.brain.startswith("training-brain.")


@with_helm
def test_values_reach_brain(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "enabled": "true",
        "postgresql": "true",
        "replicas": "2",
        "secret": "mine",
        "source": "prometheus",
        "share": "goodput",
        "prometheus": "http://prometheus.monitoring:9090",
    }
    flags = [word for name, value in values.items() for word in ("--set", f"brain.{name}={value}")]
    found = rendered(*flags, "--set", "watchNamespace=team-a", namespace="here")
    container = container_of(found, "elasticjob-brain", "here")
    variables = {each["name"]: each for each in container["env"]}
    assert variables.pop("ELASTICJOB_BRAIN_DATABASE")["valueFrom"] == {
        "secretKeyRef": {"name": "mine", "key": "database"}
    }
    for name, variable in variables.items():
        monkeypatch.setenv(name, variable.get("value", "here"))
    settings = BrainSettings()
    assert (settings.source, settings.prometheus) == ("prometheus", "http://prometheus.monitoring:9090")
    assert (settings.namespace, settings.leader_election, settings.share) == ("team-a", True, "goodput")
    assert [mount["name"] for mount in container["volumeMounts"]] == ["secret"]
    assert "PersistentVolumeClaim" not in {kind for kind, *_ in found}
    assert found["Deployment", "here", "elasticjob-brain"]["spec"]["replicas"] == 2
    assert ("RoleBinding", "team-a", "elasticjob-brain-jobs") in found


@with_helm
def test_two_releases_in_one_cluster_share_no_object() -> None:
    brain = ("--set", "brain.enabled=true")
    first = rendered("--set", "watchNamespace=team-a", *brain, namespace="a", crds=True)
    flags = ("--set", "watchNamespace=team-b", "--set", "crds=false")
    second = rendered(*flags, *brain, namespace="b", crds=True)  # with no more than these flags
    assert first.keys() & second.keys() == set()


@dataclass(frozen=True)
class Release:
    """A release in a namespace of a cluster."""

    served: Served
    namespace: str

    async def install(self, *values: str) -> None:
        """Install it, or upgrade it to these values; a real server may have the CRDs of an earlier test."""
        flags = [word for value in values for word in ("--set", value)]
        await self.run("upgrade", "elasticjob", str(CHART), "--install", "--take-ownership", *flags)

    async def run(self, *words: str) -> str:
        """Run a command of Helm."""
        words = (*words, "--namespace", self.namespace)
        return await asyncio.to_thread(helm, *words, kubeconfig=self.served.kubeconfig)


@with_helm
@pytest.mark.story
async def test_helm_installs_upgrades_and_uninstalls_and_definitions_stay(
    served: Served, client: Client, namespace: str
) -> None:
    release = Release(served, namespace)
    await release.install()
    before = await client.get(CRD, "elasticjobs.elastic.iml.github.io")
    assert (await client.get(DEPLOYMENT, ACCOUNT, namespace))["spec"]["replicas"] == 2
    await release.install("replicas=3")
    assert (await client.get(DEPLOYMENT, ACCOUNT, namespace))["spec"]["replicas"] == 3
    await release.run("uninstall", "elasticjob")
    await until(lambda: is_gone(client, namespace), "the operator is uninstalled")
    after = await client.get(CRD, "elasticjobs.elastic.iml.github.io")
    assert after.metadata.uid == before.metadata.uid


@with_helm
@pytest.mark.story
@pytest.mark.skipif(crane() is None, reason="no crane: hack/kube-binaries chart builds it")
async def test_a_registry_carries_the_chart(
    served: Served, client: Client, namespace: str, tmp_path: Path
) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    async with registry() as host:
        package = tmp_path / f"elasticjob-{__version__}.tgz"
        plain = ("--plain-http", "--registry-config", str(tmp_path / "registry.json"))
        pushed = await asyncio.to_thread(helm, "push", str(package), f"oci://{host}/charts", *plain)
        print(pushed)
        release = Release(served, namespace)
        await release.run(
            *("upgrade", "elasticjob", f"oci://{host}/charts/elasticjob", "--install", *plain),
            *("--take-ownership", "--version", __version__, "--set", "replicas=1"),
        )
    try:
        assert (await client.get(DEPLOYMENT, ACCOUNT, namespace))["spec"]["replicas"] == 1
    finally:
        await release.run("uninstall", "elasticjob")


async def is_gone(client: Client, namespace: str) -> bool:
    return await client.find(DEPLOYMENT, ACCOUNT, namespace) is None


NOTES: Final = {
    "crds.enabled=false": ("get elasticjobs", ":8081/metrics"),
    "webhook.enabled=false": ("WARNING: webhook.enabled is false", "fails with InvalidSpec"),
    "crds.keep=false": ("The CRDs go, WITH ALL JOBS OF THE CLUSTER, when",),
    "metrics.dashboards.enabled=true,webhook.failurePolicy=Ignore": ("failurePolicy is Ignore",),
    "brain.enabled=true,rbac.create=false": ("Brain needs the Secret", "rbac.create is false"),
}
"""Values, and what is then said."""


@with_helm
@pytest.mark.story
async def test_the_notes_say_what_comes_next(served: Served, namespace: str) -> None:
    release = Release(served, namespace)
    for values, said in NOTES.items():
        words = ("install", "another", str(CHART), "--take-ownership", "--dry-run=server", "--set", values)
        notes = (await release.run(*words)).partition("\nNOTES:\n")[2]
        assert [each for each in said if each not in notes] == [], notes


@with_helm
@pytest.mark.parametrize(
    ("values", "whose"),
    [
        ("diServer.enabled=true", "di-server's NetworkPolicy"),
        ("networkPolicy.enabled=true", "networkPolicy"),
        ("brain.enabled=true", ""),
        ("diServer.enabled=true,networkPolicy.metricsFrom[0].a=b", ""),
    ],
)
def test_the_notes_say_which_policy_keeps_prometheus_out(values: str, whose: str, tmp_path: Path) -> None:
    said = noted(tmp_path, f"metrics.serviceMonitor.enabled=true,{values}")
    assert re.findall(r"WARNING: (.+) admits no Prometheus", said) == ([whose] if whose else [])


@with_helm
def test_the_notes_say_that_alerts_need_a_monitor(tmp_path: Path) -> None:
    alone = noted(tmp_path / "alone", "metrics.rules.enabled=true")
    assert "ElasticJobOperatorDown fires unless" in alone
    both = noted(tmp_path / "both", "metrics.rules.enabled=true,metrics.serviceMonitor.enabled=true")
    assert "OperatorDown" not in both


def noted(folder: Path, values: str) -> str:
    """Return the notes, without a cluster: a server that has no ServiceMonitors takes none of them."""
    copy = Path(shutil.copytree(CHART, folder / CHART.name))
    notes = (copy / "templates" / "NOTES.txt").read_text()
    shown = 'kind: ConfigMap\nnotes: {{ include "notes" . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}{shown}')
    flags = ("--show-only", "templates/notes.yaml", *NO_CRDS, "--set", values)
    text: str = yaml.safe_load(templated(*flags, chart=copy))["notes"]
    return text


@with_helm
async def test_an_operator_of_one_namespace_needs_no_rights_in_others(
    served: Served, client: Client, namespace: str
) -> None:
    system = await new_namespace(client, f"{namespace}-system", accounts=served.real)
    release = Release(served, system)
    await release.install(f"watchNamespace={namespace}")
    await until(lambda: is_defined(client), "ElasticJobs are served")
    settings = Settings(
        namespace=namespace,
        probes="127.0.0.1:0",
        webhook_port=0,
        webhook_owner=f"elasticjob-operator-cluster-{namespace}",
        leader_election=True,
        lease_namespace=system,
        lease_owner="elasticjob-operator",
    )
    account = served.config(f"system:serviceaccount:{system}:{ACCOUNT}", ("system:serviceaccounts",))
    async with Client(account) as mine, running(compose(mine, settings, signals=False)) as operator:
        await operator.wait_leading()
        await client.create(ELASTICJOB.untyped(), a_job(), namespace)
        await until(lambda: client.find(POD, "digits-master-0", namespace), "the job has its master")
        await until(lambda: client.find(POD, "digits-worker-1", namespace), "the job has its workers")
        hooks = await client.get(VALIDATING_WEBHOOKS.untyped(), f"elasticjob-{namespace}")
        await release.run("uninstall", "elasticjob")
        await until(lambda: has_no_webhooks(client, namespace), "the webhooks go with the release")
    assert await has_no_webhooks(client, namespace)
    await until(lambda: is_released(client, system), "the Lease goes with the release")
    (selector,) = {str(each["namespaceSelector"]["matchLabels"]) for each in hooks["webhooks"]}
    assert selector == str({"kubernetes.io/metadata.name": namespace})


@with_helm
async def test_brain_of_one_namespace_needs_no_rights_in_others(
    served: Served, client: Client, namespace: str, tmp_path: Path
) -> None:
    system = await new_namespace(client, f"{namespace}-brain", accounts=served.real)
    release = Release(served, system)
    await release.install(f"watchNamespace={namespace}", "brain.enabled=true")
    await until(lambda: is_defined(client), "ElasticJobs are served")
    account = f"system:serviceaccount:{system}:elasticjob-brain"
    settings = BrainSettings(
        namespace=namespace,
        probes="127.0.0.1:0",
        source=Source.NONE,
        leader_election=True,
        lease_namespace=system,
    )
    job = await client.create(ELASTICJOB.untyped(), a_job(), namespace)
    async with (
        open_store(f"sqlite:///{tmp_path}/brain.db") as store,
        Client(served.config(account, ("system:serviceaccounts",))) as mine,
        aiohttp.ClientSession() as session,
        running(compose_brain(mine, settings, store, session, signals=False)) as brain,
    ):
        await brain.wait_leading()

        async def known() -> bool:
            return [row.uid for row in await store.newest_jobs(9)] == [job["metadata"]["uid"]]

        await until(known, "Brain knows the job")
        owner = ElasticJob.model_validate(job)
        kept = Record(NOW, "Idle", "worker-growth", "why", sizes={"groups": {"worker": {"count": 1}}})
        plan = plan_of(owner, replace(kept, plan="digits-brain"))
        assert (await mine.create(SCALEPLAN.untyped(), plan))["spec"]["ownerJob"] == "digits"
        with pytest.raises(Forbidden):
            await mine.create(SCALEPLAN.untyped(), plan, SYSTEM)


async def is_released(client: Client, namespace: str) -> bool:
    return await client.find(LEASE, "elasticjob-operator", namespace) is None


async def has_no_webhooks(client: Client, namespace: str) -> bool:
    kinds: tuple[Kind[Any], ...] = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    return not any([await client.find(kind, f"elasticjob-{namespace}") for kind in kinds])


def a_job() -> Manifest:
    return {"metadata": {"name": "digits"}, "spec": {"replicaSpecs": {"worker": role(2)}}}


async def is_defined(client: Client) -> bool:
    try:
        await client.list(ELASTICJOB)
    except ApiError:
        return False
    return True
