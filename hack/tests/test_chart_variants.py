"""What the chart makes of many values: kubeconform finds each object right, by schemas that need no network.

Built-in kinds are checked by the document that Kubernetes publishes, others by their CRDs: our own, and those
of prometheus-operator and cert-manager as their Go modules contain them (hack/kube-binaries chart).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elasticjob.api.core import definitions
from hack.generate import chart
from hack.generate.chart import CHART, CONFIG
from hack.generate.core.openapi import kinds
from hack.generate.json_schemas import of_definition, of_kind
from lab.clusters.binaries import Places, catalog
from lab.clusters.installed.helm import HelmFailed, program, templated
from lab.paths import ROOT

BUILT: Final = {
    name: Places.of().find(catalog().programs[name])
    for name in ("kubeconform", "monitoring-definitions", "certificate-definitions")
}
pytestmark = pytest.mark.skipif(
    program() is None or None in BUILT.values(), reason="hack/kube-binaries chart builds what this needs"
)
NAMED: Final = "{{ .Group }}_{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
PARTS: Final = "brain.enabled=true,diServer.enabled=true"
METRICS: Final = ",".join(
    f"metrics.{name}.enabled=true" for name in ("podMonitor", "serviceMonitor", "rules", "dashboards")
)
VARIANTS: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name("variants.yaml").read_text())


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schema of each kind."""
    folder = tmp_path_factory.mktemp("schemas")
    for name, schema in definitions().items():
        for version, kind in kinds(schema):
            if not kind.endswith(("List", "Options", "WatchEvent", "Status")):
                group, _, number = version.rpartition("/")
                put(folder, group or number, kind, number, of_kind(name))
    for crd in crds():
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            put(folder, group, kind, version["name"], of_definition(crd, version["name"]))
    return folder


def put(folder: Path, group: str, kind: str, version: str, schema: Mapping[str, Any]) -> None:
    (folder / f"{group}_{kind.lower()}_{version}.json").write_text(json.dumps(schema))


def crds() -> Iterator[Mapping[str, Any]]:
    """Our CRDs, and those of others' kinds in the chart."""
    names = ("podmonitors", "servicemonitors", "prometheusrules", "certificates", "issuers")
    theirs = [BUILT["monitoring-definitions"], BUILT["certificate-definitions"]]
    paths = [path for folder in theirs if folder for name in names for path in folder.glob(f"*_{name}.yaml")]
    assert len(paths) == len(names)
    for path in (*sorted((CONFIG / "crd").glob("*.yaml")), *paths):
        yield yaml.load(path.read_text(), yaml.CSafeLoader)


def checked(schemas: Path, *files: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return how many objects of each file are valid, invalid and so on, and what is wrong with them."""
    flags = ["-strict", "-output", "json", "-verbose", "-n", "1", "-schema-location", f"{schemas}/{NAMED}"]
    command = [str(BUILT["kubeconform"]), *flags, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Counter[str]] = {path.stem: Counter() for path in files}
    wrong = []
    for each in json.loads(done.stdout)["resources"]:
        if each["status"] == "statusEmpty":
            continue
        found[Path(each["filename"]).stem][each["status"].removeprefix("status")] += 1
        if each["status"] != "statusValid":
            wrong.append(f"{Path(each['filename']).stem}: {each['kind']} {each['name']}: {each['msg']}")
    return found, wrong


@pytest.mark.story
def test_every_variant_is_what_the_kinds_allow(schemas: Path, tmp_path: Path) -> None:
    files = []
    for name, given in VARIANTS.items():
        files.append(tmp_path / f"{name}.yaml")
        if isinstance(given, str):
            text = templated("--set", given.format(parts=PARTS, metrics=METRICS))
        else:
            text = templated(values=given)
        files[-1].write_text(text)
    found, wrong = checked(schemas, *files)
    for name, count in found.items():
        print(f"{name:36} {count.total():3} objects: {dict(count)}")
    assert wrong == []
    assert [name for name, count in found.items() if set(count) != {"Valid"}] == []


def test_examples_are_what_our_kinds_allow(schemas: Path) -> None:
    files = sorted((ROOT / "examples").rglob("job.yaml"))
    found, wrong = checked(schemas, *files)
    assert wrong == []
    assert sum(count.total() for count in found.values()) >= len(files) > 0


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Deployment", {"spec": {"replica": 3}}),
        ("NetworkPolicy", {"spec": {"ingres": []}}),
        ("PodMonitor", {"spec": {"selectors": {}}}),
        ("PrometheusRule", {"spec": {"groups": [{"name": "a", "rule": []}]}}),
        ("Certificate", {"spec": {"secret": "a"}}),
    ],
)
def test_a_typo_in_a_manifest_is_found(
    schemas: Path, tmp_path: Path, kind: str, change: dict[str, Any]
) -> None:
    flags = f"{METRICS},webhook.certManager.enabled=true,networkPolicy.enabled=true,crds.enabled=false"
    objects = yaml.load_all(templated("--set", flags), yaml.CSafeLoader)
    manifest = next(each for each in objects if each and each["kind"] == kind)
    manifest["spec"] |= change["spec"]
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(manifest))
    found, wrong = checked(schemas, tmp_path / "one.yaml")
    assert found == {"one": {"Invalid": 1}}
    assert "additional properties" in wrong[0] or "additionalProperties" in wrong[0]


TYPOS: Final[dict[str, Any]] = {
    "tolerations": [{"kay": "pool"}],
    "affinity": {"nodeAffinity": {"preferred": []}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "b", "minDomain": 1}
    ],
    "podSecurityContext": {"runAsUsr": 1},
    "containerSecurityContext": {"capabilities": {"dropp": ["ALL"]}},
    "extraEnv": [{"name": "A", "valeu": "b"}],
    "resources": {"limit": {"cpu": 1}},
    "podLabels": {"a": 1},
}


def test_a_typo_at_each_level_is_refused(tmp_path: Path) -> None:
    values: dict[str, Any] = yaml.safe_load((ROOT / "charts" / "elasticjob" / "values.yaml").read_text())
    levels = [*groups("", values)]
    for group in [each for _, each in levels]:
        group["typo"] = "x"
    values |= TYPOS
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(HelmFailed) as refused:
        templated("--values", str(tmp_path / "values.yaml"))
    lines = str(refused.value).splitlines()
    found = {line.split("'")[1] for line in lines if "additional properties 'typo' not allowed" in line}
    assert found == {path for path, _ in levels}
    where = {line.split("'")[1] for line in lines if line.lstrip(" -").startswith("at '")}
    assert {name for name in TYPOS if not any(path.startswith(f"/{name}") for path in where)} == set()


FREE: Final = {"labels", "annotations", "nodeSelector", "global", "resources"}
"""Maps whose keys are the user's, and types of Kubernetes; `global` belongs to all charts of a release."""


def groups(path: str, values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the groups of values, by their path in messages."""
    yield path, values
    for name, each in values.items():
        if isinstance(each, dict) and each and name not in FREE:
            yield from groups(f"{path}/{name}", each)


@pytest.mark.parametrize(
    ("version", "semantic"),
    [("0.2.0", "0.2.0"), ("0.2.0rc1", "0.2.0-rc1"), ("1.0.0a2", "1.0.0-a2"), ("1.0.0.dev3", "1.0.0-dev3")],
)
def test_helm_reads_each_version_and_images_have_the_package_s(
    version: str, semantic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(CHART, tmp_path / CHART.name))
    monkeypatch.setattr(chart, "__version__", version)
    (copy / "Chart.yaml").write_text(chart.chart_text())
    text = templated("--set", "crds.enabled=false", chart=copy)
    assert {f"elasticjob-{semantic}"} == set(re.findall(r"helm.sh/chart: (.+)", text))
    assert {version} == set(re.findall(r"""image: "?elasticjob/operator:([^"]+)""", text))
