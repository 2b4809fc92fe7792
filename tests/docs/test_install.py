"""docs/install.md, run with the real kubectl and Helm against an API server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kit.clusters.served import devcluster_server
from tests.kit.console import follow
from tests.kit.helm import program

ROOT = Path(__file__).parents[2]
HELM = program()


@pytest.mark.skipif(HELM is None or shutil.which("kubectl") is None, reason="no helm, or no kubectl")
async def test_install_shows_what_is_printed(tmp_path: Path) -> None:
    path = f"{os.environ['PATH']}{os.pathsep}{Path(str(HELM)).parent}"
    async with devcluster_server(tmp_path) as served:
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(served.kubeconfig)}
        await follow(ROOT / "docs" / "install.md", ROOT, environment)
