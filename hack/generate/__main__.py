"""Write all that is generated: models of built-in types, CRDs, the chart, dashboards, Argo CD's ConfigMap,
docs, an example.

python -m hack.generate                     # make generate
python -m hack.generate --check             # make check, CI: writes nothing, shows the difference, exits 1
python -m hack.generate --allow-breaking    # write CRDs, though objects that are stored may suffer
python -m hack.generate --check --since v1  # what has changed since a release, breaking changes first

CRDs are compared with those of the last commit: what changes for stored objects is told, and a breaking
change is not written unless it is allowed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from elasticjob.api.crds import DECLARATIONS, manifest
from elasticjob.kube.crd.compatibility import changes
from elasticjob.kube.crd.embedded import Detail
from elasticjob.kube.crd.installing import size_problem
from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.objects.kinds import Manifest
from hack.generate import argocd, chart, dashboards
from hack.generate.core.models import core_models
from hack.generate.example import example_job
from hack.generate.pages import api as api_docs
from hack.generate.pages.alerts import PAGE as ALERTS
from hack.generate.pages.alerts import alert_docs
from hack.generate.pages.algorithms import algorithms
from hack.generate.pages.architecture import architecture
from hack.generate.pages.cli import cli_docs
from hack.generate.pages.concepts import concepts
from hack.generate.pages.figures import README, figures
from hack.generate.pages.metrics import PAGE as METRICS
from hack.generate.pages.metrics import metrics_docs
from hack.generate.pages.troubles import PAGE as TROUBLES
from hack.generate.pages.troubles import PENDING, pending, troubles
from lab.paths import ROOT

EXAMPLES = tuple(ROOT / "examples" / name for name in ("digits", "jax", "keras", "parameters"))
CONCEPTS = ROOT / "docs" / "concepts.md"
BRAIN = ROOT / "docs" / "brain.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
CLI = ROOT / "docs" / "cli.md"
HEADER = "# Made by `make generate` from the models in api/; do not edit.\n"


def outputs(detail: Detail) -> Mapping[Path, Callable[[], str]]:
    """Return the generated files: path → content."""
    return {
        ROOT / "api" / "core" / "models.py": core_models,
        **{folder / "job.yaml": partial(example_job, folder) for folder in EXAMPLES},
        CONCEPTS: partial(concepts, CONCEPTS),
        BRAIN: partial(algorithms, BRAIN),
        ARCHITECTURE: partial(architecture, ARCHITECTURE),
        CONTRIBUTING: partial(architecture, CONTRIBUTING),
        METRICS: metrics_docs,
        README: figures,
        TROUBLES: troubles,
        PENDING: pending,
        ALERTS: alert_docs,
        CLI: partial(cli_docs, CLI),
        **{crd_path(one): partial(crd_text, one, detail) for one in DECLARATIONS},
        **dashboards.outputs(),
        argocd.FOLDER / "argocd-cm.yaml": argocd.config_map,
        **chart.outputs(),
        **{path: partial(str, text) for path, text in api_docs.pages(ROOT / "docs" / "api").items()},
    }


def crd_path(declaration: Declaration) -> Path:
    """Return where the CRD of a declaration is kept."""
    return ROOT / "config" / "crd" / f"{declaration.kind.plural}.yaml"


def crd_text(declaration: Declaration, detail: Detail = Detail.TYPED) -> str:
    """Return the YAML of a declaration's CRD."""
    return HEADER + yaml.dump(packed(manifest(declaration, detail)), Dumper=Plain, sort_keys=False, width=120)


class Packed(dict[str, Any]):
    """A part that is written in flow style, which saves a hundred kilobytes of indentation."""


def packed(node: Any) -> Any:
    """Return a manifest with the schemas of pod templates Packed."""
    if isinstance(node, list):
        return [packed(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: Packed(item) if key == "template" else packed(item) for key, item in node.items()}


class Plain(yaml.CSafeDumper):
    """YAML without anchors: two equal lists are written twice. In C: definitions are large."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def represent_packed(dumper: Plain, node: Packed) -> yaml.Node:
    """Write a Packed part in flow style, with all that is in it."""
    return dumper.represent_mapping("tag:yaml.org,2002:map", node, flow_style=True)


Plain.add_representer(Packed, represent_packed)


def main(arguments: list[str]) -> int:
    """Write the files, or with --check print what would change; 1 if anything is stale, or breaking."""
    options = parser().parse_args(arguments)
    detail = Detail(options.template)
    since = options.since or "HEAD"
    broken = [one for one in DECLARATIONS if told(one, detail, since) and not options.allow_breaking]
    held = set() if options.check else {crd_path(one) for one in broken}
    files = {path: text for path, text in outputs(detail).items() if path not in held}
    stale = [path for path, text in files.items() if renew(path, text(), options.check)]
    if stale and options.check:
        print(f"{len(stale)} generated file(s) are stale: run make generate", file=sys.stderr)
    if broken and (not options.check or options.since):
        names = ", ".join(declaration.kind.name for declaration in broken)
        print(f"breaking changes of {names}: undo them, or say --allow-breaking", file=sys.stderr)
        return 1
    return int(bool(stale) and options.check)


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    reader = argparse.ArgumentParser(description="Write what is generated from the models.")
    reader.add_argument("--check", action="store_true", help="write nothing, show what is stale")
    reader.add_argument("--allow-breaking", action="store_true", help="write CRDs that break stored objects")
    reader.add_argument(
        "--since", metavar="REVISION", help="compare CRDs with this revision, not the last commit"
    )
    reader.add_argument(
        "--template",
        choices=[detail.value for detail in Detail],
        default=Detail.TYPED.value,
        help="how much the schemas say of pod templates",
    )
    return reader


def told(declaration: Declaration, detail: Detail, since: str) -> bool:
    """Print how a CRD's change affects stored objects, and its size if that matters; return whether it
    breaks."""
    new, path = manifest(declaration, detail), crd_path(declaration)
    if size := size_problem(new):
        print(f"{path.relative_to(ROOT)}: {size}")
    if (old := committed(path, since)) is None:
        return False
    breaking = changes(old, new)
    if breaking:
        print(f"{path.relative_to(ROOT)}, compared with {since}:")
    for change in breaking:
        print(f"  {change.sentence()}")
    return bool(breaking)


def committed(path: Path, revision: str) -> Manifest | None:
    """Return a CRD as of a revision; as on disk without git; None if it did not exist.

    Raises SystemExit if git fails, since breaking changes could not be detected.
    """
    name = str(path.relative_to(ROOT))
    command = ["git", "-C", str(ROOT), "show", f"{revision}:{name}"]
    try:
        shown = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        shown = None
    if shown is None or "not a git repository" in shown.stderr:
        text = path.read_text() if path.exists() else ""
    elif shown.returncode and "fatal: path " not in shown.stderr:
        raise SystemExit(f"error: cannot compare {name} with {revision}: {shown.stderr.strip()}")
    else:
        text = shown.stdout
    stored: Manifest | None = yaml.load(text, yaml.CSafeLoader)
    return stored


def renew(path: Path, text: str, checking: bool) -> bool:
    """Write or compare one file; return whether it was stale."""
    before = path.read_text() if path.exists() else ""
    if before == text:
        return False
    name = str(path.relative_to(ROOT))
    if checking:
        sys.stdout.writelines(
            difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, name)
        )
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {name}")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
