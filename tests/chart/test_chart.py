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
from lab.running import running
from lab.waiting import until
from tests.kit.registry import crane, registry

pytestmark = pytest.mark.skipif(program() is None, reason="no helm: hack/kube-binaries helm builds it")
CONFIG: Final = ROOT / "config"
ROWS: Final = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
DEPLOYMENT: Kind[Manifest] = Kind("apps", "v1", "Deployment", "deployments", dict)
COMPONENTS: Final = {
    "brain": "brain.enabled=true",
    "diengine": "diServer.enabled=true",
    "certmanager": "webhook.certManager.enabled=true",
    "prometheus": ",".join(
        f"metrics.{name}.enabled=true" for name in ("podMonitor", "serviceMonitor", "rules")
    ),
}
"""What has the chart bring the objects of a component of `config/`."""
ONLY_HELMS: Final = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
"""Labels of the chart's objects that those of `config/` do not have."""
NO_CRDS: Final = ("--set", "crds.enabled=false")
KEEP: Final = {"helm.sh/resource-policy": "keep"}
PROGRAMS: Final = ("elasticjob-operator", "elasticjob-brain", "elasticjob-di-server")
ALL: Final = ("--set", "brain.enabled=true,diServer.enabled=true")

Objects = dict[tuple[str, str, str], Manifest]


def objects(text: str) -> Objects:
    """Return manifests by kind, namespace and name."""
    found = (each for each in yaml.load_all(text, yaml.CSafeLoader) if each)  # ten times as fast
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found
    }


def rendered(*flags: str, namespace: str = SYSTEM, values: Manifest | None = None) -> Objects:
    """Return what a release consists of, without the CRDs: they are larger than all the rest."""
    return objects(templated(*NO_CRDS, *flags, namespace=namespace, values=values))


def program_of(found: Objects, name: str) -> Manifest:
    """Return the container of a program with its variables by name, and its pod as `pod`."""
    pod = of_kind(found, f"Deployment/{name}")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    return {"pod": pod, **container, **variables}


def of_kind(found: Objects, what: str) -> Manifest:
    """Return an object by `Kind/name`, or any of a kind; an empty one if there is none."""
    kind, _, name = what.partition("/")
    return next((each for key, each in found.items() if key[0] == kind and name in ("", key[2])), {})


def field(of: Any, path: str) -> Any:
    """Return a field of an object, None if it is not there."""
    for name in path.split("/"):
        of = (of or {}).get(name)
    return of


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
    found = objects(templated(*(word for name in components for word in ("--set", COMPONENTS[name]))))
    del found["Pod", SYSTEM, "elasticjob-test"]  # of `helm test`
    for key, manifest in found.items():
        for label in ONLY_HELMS:
            del manifest["metadata"]["labels"][label]
        if key[0] == "CustomResourceDefinition":
            assert manifest["metadata"].pop("labels") == {"app.kubernetes.io/name": "elasticjob"}
        if key[0] in ("CustomResourceDefinition", "PersistentVolumeClaim"):
            assert manifest["metadata"].pop("annotations") == KEEP
    for each in (found, installed):
        program_of(each, "elasticjob-operator")["env"].sort(key=lambda variable: variable["name"])
    assert found == installed


def test_helm_finds_no_fault() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", *KUBERNETES, str(CHART))


@pytest.mark.parametrize("given", ROWS["refused"])
def test_wrong_values_are_refused_by_name(given: str) -> None:
    with pytest.raises(HelmFailed, match=re.escape(ROWS["refused"][given])):
        rendered("--set", given)


@pytest.mark.parametrize("given", ROWS["arrive"])
def test_values_arrive(given: str) -> None:
    found = rendered(*ALL, "--set", given)
    images = [program_of(found, name)["image"] for name in PROGRAMS]
    assert images[0] == images[2]
    for what, wanted in ROWS["arrive"][given].items():
        one = of_kind(found, what) if what[0].isupper() else program_of(found, f"elasticjob-{what}")
        assert bool(one) is (wanted is not None), what
        assert {path: field(one, path) for path in wanted or ()} == (wanted or {})


@pytest.mark.parametrize("row", ROWS["settings"])
def test_values_reach_the_settings_of_a_program(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, values), (name, wanted) = ROWS["settings"][row].items()
    found = rendered(*ALL, namespace="sys", values=values)
    for each in program_of(found, name)["env"]:
        monkeypatch.setenv(each["name"], each.get("value", "sys"))
    settings = BrainSettings() if name.endswith("-brain") else Settings()
    assert settings.model_dump(mode="json", include=set(wanted)) == wanted
    if isinstance(settings, Settings):
        assert ("ClusterRole", "", settings.webhook_owner) in found
        assert scrapers_of(settings) == ({"kubernetes.io/metadata.name": "sys"}, *settings.scrapers)
        hooks = webhooks_of(settings, Client(Config("https://a")))
        policies = {each.terms.failure_policy for each in hooks}
        assert {settings.webhook_failure_policy} <= policies <= {settings.webhook_failure_policy, "Ignore"}


WHERE: Final = ("nodeSelector", "tolerations", "affinity", "priorityClassName")
OF_A_POD: Final[dict[str, Any]] = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "gold",
    "podSecurityContext": {"fsGroupChangePolicy": "OnRootMismatch", "runAsGroup": 7, "runAsNonRoot": None},
    "containerSecurityContext": {"readOnlyRootFilesystem": False},
    "podLabels": {"team": "a", "app.kubernetes.io/name": "not this"},
    "podAnnotations": {"scraped": "yes"},
    "serviceAccount": {"annotations": {"role": "reader"}},
    "extraEnv": [{"name": "HTTP_PROXY", "value": "http://proxy:3128"}],
}


def test_the_user_of_masters_is_the_charts() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["userId"] == NOBODY
    assert f"ne $user {NOBODY}" in (CHART / "templates" / "_programs.tpl").read_text()


def test_each_program_has_its_own_values_of_pods() -> None:
    pull = {"imagePullSecrets": [{"name": "ours"}], "global": {"imagePullSecrets": [{"name": "all"}]}}
    values = {**OF_A_POD, "brain": OF_A_POD, "diServer": OF_A_POD, **pull}
    found, plain = rendered(*ALL, values=values), rendered(*ALL)
    for name in PROGRAMS:
        one, before = program_of(found, name), program_of(plain, name)
        assert one["pod"]["imagePullSecrets"] == [{"name": "all"}, {"name": "ours"}]
        assert {key: one["pod"][key] for key in WHERE} == {key: OF_A_POD[key] for key in WHERE}
        security = before["pod"]["securityContext"] | {
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsGroup": 7,
        }
        del security["runAsNonRoot"]
        assert one["pod"]["securityContext"] == security
        assert one["securityContext"]["readOnlyRootFilesystem"] is False
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["env"] == [*before["env"], *OF_A_POD["extraEnv"]]
        labels, about = (
            field(of_kind(each, f"Deployment/{name}"), "spec/template/metadata") for each in (plain, found)
        )
        assert about == {"labels": labels["labels"] | {"team": "a"}, "annotations": {"scraped": "yes"}}
        account = of_kind(found, f"ServiceAccount/{name}")
        assert account["metadata"]["annotations"] == {"role": "reader"}


def test_a_value_with_nothing_behind_its_name_is_as_if_it_was_left_out() -> None:
    """`podLabels:` and no more, as in a file of values whose lines are commented out, is null."""
    empty = dict.fromkeys((*OF_A_POD.keys() - {"priorityClassName", "serviceAccount"}, "extraArgs"))
    values: Manifest = empty | dict.fromkeys(("commonLabels", "imagePullSecrets", "scrapers"))
    values |= {"global": {"imagePullSecrets": None}, "image": {"tag": None, "digest": None, "registry": None}}
    values |= {"brain": {"enabled": True} | empty}
    assert rendered(values=values) == rendered("--set", "brain.enabled=true")


def test_the_command_of_the_chart_s_readme_takes_all_images_from_the_registry() -> None:
    [flag] = re.findall(r"^helm install .*--set (\S+)$", (CHART / "README.md").read_text(), re.MULTILINE)
    found = rendered(*ALL, "--set", flag)
    images = [program_of(found, name)["image"] for name in PROGRAMS]
    images.append(program_of(found, PROGRAMS[0]).get("ELASTICJOB_OPERATOR_TRAINER_IMAGE", "elsewhere"))
    assert [image for image in images if not image.startswith("REGISTRY/elasticjob/")] == []


def test_a_chart_that_contains_this_one_has_globals_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "elasticjob").symlink_to(CHART)
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: platform, version: 1.0.0}")
    flags = "global.storageClass=fast,global.imageRegistry=registry.local,elasticjob.crds=false"
    found = objects(templated("--set", flags, chart=tmp_path))
    assert program_of(found, PROGRAMS[0])["image"] == "registry.local/elasticjob/operator:0.1.0"


def test_without_cluster_wide_rights_only_nodes_and_webhooks_are_left() -> None:
    quotas = {"clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses", "priorityclasses"}
    hooks = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "clusterroles"}

    def wide(*flags: str) -> dict[str, set[str]]:
        found = rendered(*ALL, "--set", "watchNamespace=team-a", *flags)
        return {
            key[2].removeprefix("elasticjob-").removesuffix("-team-a"): {
                each for rule in role["rules"] for each in rule["resources"]
            }
            for key, role in found.items()
            if key[0] == "ClusterRole"
        }

    others = {"brain-cluster": {"nodes"}, "di-server-cluster": {"nodes"}}
    assert wide() == {"operator-cluster": {"nodes"} | hooks | quotas} | others
    assert wide("--set", "webhook.enabled=false") == {"operator-nodes": {"nodes"} | quotas} | others


METRICS: Final[Manifest] = {
    "podMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "1m"},
    "serviceMonitor": {"enabled": True, "namespace": "monitoring"},
    "rules": {"enabled": True, "runbookBaseUrl": "https://docs.local/runbooks/"},
    "dashboards": {"enabled": True, "namespace": "grafana", "labels": {"grafana_dashboard": "yes"}},
}


def test_monitoring_is_found_where_it_is_looked_for() -> None:
    found = rendered(values={"metrics": METRICS, "commonLabels": {"team": "ml"}})
    masters = found["PodMonitor", SYSTEM, "elasticjob-masters"]
    assert masters["metadata"]["labels"].items() >= {"release": "prom", "team": "ml"}.items()
    assert [each["interval"] for each in masters["spec"]["podMetricsEndpoints"]] == ["1m"]
    operator = found["ServiceMonitor", "monitoring", "elasticjob-operator"]
    assert operator["spec"]["namespaceSelector"] == {"matchNames": [SYSTEM]}
    source = yaml.safe_load((CONFIG / "prometheus" / "rules.yaml").read_text())
    for alert in (rule for group in source["spec"]["groups"] for rule in group["rules"] if "alert" in rule):
        alert["annotations"]["runbook_url"] = f"https://docs.local/runbooks/{alert['alert']}"
    assert found["PrometheusRule", SYSTEM, "elasticjob"]["spec"] == source["spec"]
    for path in (CONFIG / "grafana").glob("*.json"):
        board = found["ConfigMap", "grafana", f"elasticjob-dashboard-{path.stem}"]
        assert board["data"] == {path.name: path.read_text()}
        assert board["metadata"]["labels"]["grafana_dashboard"] == "yes"
        assert board["metadata"]["annotations"] == {"grafana_folder": "elasticjob"}


def test_other_names_reach_every_object_that_is_named_by_another() -> None:
    text = templated(*ALL, *NO_CRDS, "--set", "fullnameOverride=training,nameOverride=trainer", namespace="x")
    lines = (line for line in text.splitlines() if "helm.sh/chart" not in line)
    written = "\n".join(line.partition("#")[0] for line in lines)
    assert set(re.findall(r"\belasticjob-[\w-]+", written.replace('"elasticjob-brain"', "a Secret"))) == set()
    assert "io/name: elasticjob" not in written


def test_two_releases_in_one_cluster_share_no_object() -> None:
    first = templated("--set", "watchNamespace=team-a,brain.enabled=true", namespace="a")
    second = templated("--set", "watchNamespace=team-b,crds=false,brain.enabled=true", namespace="b")
    assert objects(first).keys() & objects(second).keys() == set()


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


@pytest.mark.story
@pytest.mark.skipif(crane() is None, reason="no crane: hack/kube-binaries chart builds it")
async def test_a_registry_carries_the_chart(
    served: Served, client: Client, namespace: str, tmp_path: Path
) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    async with registry(tmp_path) as host:
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


@pytest.mark.story
async def test_the_notes_say_what_comes_next(served: Served, namespace: str) -> None:
    release = Release(served, namespace)
    for values, said in NOTES.items():
        words = ("install", "another", str(CHART), "--take-ownership", "--dry-run=server", "--set", values)
        notes = (await release.run(*words)).partition("\nNOTES:\n")[2]
        assert [each for each in said if each not in notes] == [], notes


@pytest.mark.parametrize("given", ROWS["notes"])
def test_the_notes_warn_of_what_will_be_missing(given: str, tmp_path: Path) -> None:
    said, unsaid = ROWS["notes"][given]
    notes = noted(tmp_path, given)
    assert said in notes
    assert unsaid not in notes


def noted(folder: Path, values: str) -> str:
    """Return the notes, without a cluster: a server that has no ServiceMonitors takes none of them."""
    copy = Path(shutil.copytree(CHART, folder / CHART.name))
    notes = (copy / "templates" / "NOTES.txt").read_text()
    shown = 'kind: ConfigMap\nnotes: {{ include "notes" . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}{shown}')
    flags = ("--show-only", "templates/notes.yaml", *NO_CRDS, "--set", values)
    text: str = yaml.safe_load(templated(*flags, chart=copy))["notes"]
    return text


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
        sizes = {"groups": {"worker": {"count": 1}}}
        kept = Record(datetime(2026, 1, 1, tzinfo=UTC), "Idle", "worker-growth", "why", sizes=sizes)
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
