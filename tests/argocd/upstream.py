"""The health checks and actions of config/argocd, run as Argo CD runs them: Lua 5.1 with few libraries.

Argo CD gives a script the base and table libraries, `os.date` and `os.time`, the globals `obj` and
`actionParams`, and nothing else: not even methods of strings. What a script returns becomes JSON, in which an
empty table is a list; of a patched object, what was an empty object before is made one again.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from lupa import lua51

from elasticjob.kube.objects.kinds import Manifest

CUSTOMIZATIONS: Final = Path("config/argocd/resource_customizations")
STATUSES: Final = frozenset({"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"})
SANDBOX: Final = """
os = { date = os.date, time = os.time }
package.loaded.os = os
string, math, io, debug, coroutine, load, loadstring, dofile, python = nil
getmetatable("").__index = nil
"""


class LuaError(Exception):
    """What a script raises; Argo CD shows the message."""


def folder_of(manifest: Manifest) -> Path:
    """Return where the scripts for an object are."""
    group, kind = str(manifest["apiVersion"]).partition("/")[0], str(manifest["kind"])
    return CUSTOMIZATIONS / group / kind


def read(path: Path) -> Manifest:
    """Return the YAML document of a file."""
    found: Manifest = yaml.load(path.read_text(), yaml.CSafeLoader)
    return found


def run(script: str, manifest: Manifest, parameters: dict[str, str] | None = None) -> Any:
    """Return what a script returns, as JSON. Raises LuaError."""
    runtime = lua51.LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    runtime.execute(SANDBOX)
    names = runtime.globals()
    names["obj"] = runtime.table_from(manifest, recursive=True)
    names["actionParams"] = runtime.table_from(parameters or {})
    try:
        return _plain(runtime.execute(script))
    except lua51.LuaError as error:
        raise LuaError(str(error)) from None


def health(manifest: Manifest, script: str | None = None) -> dict[str, str]:
    """Return status and message of an object."""
    found = run(script or (folder_of(manifest) / "health.lua").read_text(), manifest)
    assert found["status"] in STATUSES, found
    return {"status": found["status"], "message": found.get("message", "")}


def discovered(manifest: Manifest) -> dict[str, Any]:
    """Return the actions that are offered for an object, by name."""
    found = run((folder_of(manifest) / "actions" / "discovery.lua").read_text(), manifest)
    return dict(found) if found else {}


def acted(manifest: Manifest, action: str, parameters: dict[str, str] | None = None) -> list[Manifest]:
    """Return the objects that an action patches or creates. Raises LuaError."""
    script = (folder_of(manifest) / "actions" / action / "action.lua").read_text()
    found = run(script, manifest, parameters)
    if isinstance(found, list):
        return [
            _cleaned(each["resource"], manifest) if each["operation"] == "patch" else each["resource"]
            for each in found
        ]
    return [_cleaned(found, manifest)]


def _plain(value: Any) -> Any:
    """A Lua value as JSON; numbers that are whole are integers, as in the objects."""
    if lua51.lua_type(value) == "table":
        items = dict(value.items())
        if set(items) == set(range(1, len(items) + 1)):
            return [_plain(items[place]) for place in range(1, len(items) + 1)]
        return {key: _plain(item) for key, item in items.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _cleaned(new: Any, old: Any) -> Any:
    """An object that was patched, in which empty objects of before are objects again."""
    if isinstance(old, dict) and new == []:
        return {}
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _cleaned(item, old.get(key)) for key, item in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        beside = [*old, *[None] * len(new)]
        return [_cleaned(item, beside[place]) for place, item in enumerate(new)]
    return deepcopy(new)
