"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Kubeconfig = Annotated[
    Path | None, typer.Option(help="The cluster; else KUBECONFIG, ~/.kube/config, or the pod's account.")
]
Context = Annotated[str | None, typer.Option(help="The context, if not the kubeconfig's current one.")]
