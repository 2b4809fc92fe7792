"""Kubeconfigs, and programs that give credentials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with the contexts `one` (current, namespace lab) and `two`."""
    clusters = [
        {"name": "one", "cluster": {"server": "https://one:6443"} | (cluster or {})},
        {"name": "two", "cluster": {"server": "http://two:8080/"}},
    ]
    contexts = [
        {"name": "one", "context": {"cluster": "one", "user": "u", "namespace": "lab"}},
        {"name": "two", "context": {"cluster": "two", "user": "u"}},
    ]
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": clusters,
                "contexts": contexts,
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def plugin(tmp_path: Path, **answer: Any) -> dict[str, Any]:
    """A user whose credentials come from a program, which counts its runs."""
    version = "client.authentication.k8s.io/v1"
    said = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "TOKEN"} | answer}
    program = tmp_path / "plugin"
    program.write_text(
        "#!/bin/sh\n"
        f'echo run >> "{tmp_path}/runs"\n'
        f'n=$(wc -l < "{tmp_path}/runs" | tr -d " ")\n'
        f"sed s/TOKEN/t$n/ <<'END'\n"
        f"{json.dumps(said)}\n"
        "END\n"
    )
    program.chmod(0o755)
    return {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}
