"""Kubeconfigs, and exec credential plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

VERSION = "client.authentication.k8s.io/v1"


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
    """A user with an exec plugin that counts its runs."""
    program = tmp_path / "plugin"
    program.write_text(
        "#!/bin/sh\n"
        f'echo run >> "{tmp_path}/runs"\n'
        f'n=$(wc -l < "{tmp_path}/runs" | tr -d " ")\n'
        f"sed s/TOKEN/t$n/ <<'END'\n"
        f"{said({'token': 'TOKEN'} | answer)}\n"
        "END\n"
    )
    program.chmod(0o755)
    return printed_by(str(program))


def printed_by(command: str, *arguments: str, version: str = VERSION) -> dict[str, Any]:
    """A user with an exec plugin."""
    asked = {"apiVersion": version, "command": command, "args": list(arguments), "interactiveMode": "Never"}
    return {"exec": asked}


def said(status: object) -> str:
    """The output of an exec plugin."""
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
