"""What API kinds and operators load of `kube.crd`."""

from __future__ import annotations

import subprocess
import sys

LIGHT = {"elasticjob.kube.crd", "elasticjob.kube.crd.model", "elasticjob.kube.crd.schemas"}
MODULES = ("api.v1alpha1.elasticjob", "api.v1alpha1.scaleplan", "controllers.main")


def test_kinds_and_operators_load_the_model_without_the_generator() -> None:
    code = f"import sys, {', '.join(f'elasticjob.{module}' for module in MODULES)}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert {name for name in loaded if name.startswith("elasticjob.kube.crd")} == LIGHT
    assert not loaded & {"re2", "cel_expr_python"}
