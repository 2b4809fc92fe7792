"""Write everything that is generated: models of built-in types, CRDs, the manifest of the example.

hack/generate.py            # make generate
hack/generate.py --check    # make check, CI: writes nothing, shows the difference, exits 1
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from elasticjob.api.v1alpha1.crds import DECLARATIONS, manifest
from elasticjob.kube.crd import Declaration
from elasticjob.kube.embedded import Detail
from hack.core_models import core_models
from hack.example import example_job

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "digits"
HEADER = "# Made by `make generate` from api/v1alpha1; do not edit.\n"


def outputs(detail: Detail) -> Mapping[Path, Callable[[], str]]:
    """Return what is generated: path → its text."""
    return {
        ROOT / "api" / "core" / "models.py": core_models,
        EXAMPLE / "job.yaml": lambda: example_job(EXAMPLE),
        **{crd_path(one): lambda one=one: crd_text(one, detail) for one in DECLARATIONS},  # type: ignore[misc]
    }


def crd_path(declaration: Declaration) -> Path:
    """Return where the CRD of a declaration is kept."""
    return ROOT / "config" / "crd" / f"{declaration.kind.plural}.yaml"


def crd_text(declaration: Declaration, detail: Detail = Detail.TYPED) -> str:
    """Return the YAML of a declaration's CRD."""
    return HEADER + yaml.dump(packed(manifest(declaration, detail)), Dumper=Plain, sort_keys=False, width=120)


class Packed(dict[str, Any]):
    """A part that is written in flow style: for machines, and without a hundred kilobytes of indentation."""


def packed(node: Any) -> Any:
    """Return a manifest with the schemas of pod templates Packed."""
    if isinstance(node, list):
        return [packed(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: Packed(item) if key == "template" else packed(item) for key, item in node.items()}


class Plain(yaml.SafeDumper):
    """YAML without anchors: two equal lists are written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def represent_packed(dumper: Plain, node: Packed) -> yaml.Node:
    """Write a Packed part in flow style, with all that is in it."""
    return dumper.represent_mapping("tag:yaml.org,2002:map", node, flow_style=True)


Plain.add_representer(Packed, represent_packed)


def main(arguments: list[str]) -> int:
    """Write the files, or with --check print what would change; 1 if anything is stale."""
    checking = "--check" in arguments
    stale = [path for path, text in outputs(Detail.TYPED).items() if renew(path, text(), checking)]
    if stale and checking:
        print(f"{len(stale)} generated file(s) are stale: run make generate", file=sys.stderr)
    return int(bool(stale) and checking)


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
