"""Answers without what chance decides: uids, times, versions, generated names, addresses.

Equal things stay equal and keep their order: the second uid that a probe sees is `uid2` on both servers;
versions
of objects become their rank among those that the probe saw, and the version of a list or a bookmark the
newest rank it
covers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.conformance.play import Observation, Played

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"20(2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_ADDRESS = re.compile(r"\b(10\.96|127\.(9[6-9]|1[01]\d|12[0-7]))\.\d+\.\d+\b")
_ACCESS = re.compile(r"kube-api-access-\w{5}\b")
_AGE = re.compile(r"\d+s")
_SUFFIX = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}$")


def normalise(played: Played) -> list[Observation]:
    """Every observation of a probe in its normal form."""
    words = _Words(played)
    return [words.of(each, "") for each in played.observations]


class _Words:
    """The symbols that one probe's answers are told in."""

    def __init__(self, played: Played) -> None:
        self._places = sorted(played.places.items(), key=lambda pair: -len(pair[1]))
        self._uids: dict[str, str] = {}
        versions = sorted({int(each) for each in _object_versions(played.observations)})
        self._ranks = {version: rank for rank, version in enumerate(versions, 1)}
        self._generated = dict(_generated(played.observations))

    def of(self, value: Any, key: str) -> Any:
        if isinstance(value, dict) and value.get("status") == "Failure":
            value = refusal(value)
        if isinstance(value, dict):
            return {
                self._text(name): self._member(name, each, value)
                for name, each in value.items()
                if not (name == "extra" and _is_of_certificate(each))
            }
        if isinstance(value, list):
            items = [self.of(each, key) for each in value]
            if key.endswith("managedFields"):
                return sorted((each for each in items if not _is_controllers(each)), key=_book_order)
            return items
        if key.endswith("cells") and isinstance(value, str) and _AGE.fullmatch(value):
            return "<age>"
        return self._text(value) if isinstance(value, str) else value

    def _member(self, name: str, value: Any, holder: dict[str, Any]) -> Any:
        if name.endswith("resourceVersion") and isinstance(value, str) and value.isdigit():
            return self._version(
                int(value), named="name" in holder or "uid" in holder or name != "resourceVersion"
            )
        if name == "description" and "priority" in holder:
            return "(a column's)"
        if name == "storageVersionHash":
            return "<hash>"
        if name == "continue" and value:
            return "<continue>"
        if name == "nodePort" and value:
            return "<node port>"
        if name == "token" and value:
            return "<token>"
        if name in ("resourceRules", "nonResourceRules"):  # the real server's order is chance
            return sorted(self.of(value, name) or (), key=str)
        return self.of(value, name)

    def _version(self, version: int, *, named: bool) -> str:
        if named and version in self._ranks:
            return f"rv{self._ranks[version]}"
        covered = max((rank for seen, rank in self._ranks.items() if seen <= version), default=0)
        return f"≥rv{covered}"

    def _text(self, text: str) -> str:
        for name, place in self._places:
            text = text.replace(place, f"<{name}>")
        for found, symbol in self._generated.items():
            text = text.replace(found, symbol)
        text = _UUID.sub(lambda found: self._uids.setdefault(found[0], f"uid{len(self._uids) + 1}"), text)
        text = _TIME.sub("<time>", text)
        return _ACCESS.sub("kube-api-access-<random>", _ADDRESS.sub("<cluster-ip>", text))


def refusal(status: dict[str, Any]) -> dict[str, Any]:
    """A refusal without its wording: code, reason, and the fields that are at fault, each once."""
    details = status.get("details") or {}
    causes = [(_field(each.get("field", "")), each.get("reason", "")) for each in details.get("causes") or ()]
    # what begins with a dot is told of a scale path, once more than of the field
    pairs = {(field, reason) for field, reason in causes if not field.startswith(".")}
    shown = [{"field": field, "reason": reason} for field, reason in sorted(pairs)]
    return {
        "status": "Failure",
        "code": status.get("code"),
        "reason": status.get("reason"),
        "details": {"causes": shown} if shown else {},
    }


def _field(path: str) -> str:
    """A field as the published form of its kind has it; of a CRD the real server names its older form's."""
    for name, old in (("schema", "validation"), ("subresources", "subresources")):
        path = re.sub(rf"^spec\.{old}\b", f"spec.versions[0].{name}", path)
    return path


def _book_order(entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, dict):
        return ()
    return tuple(str(entry.get(name, "")) for name in ("manager", "operation", "subresource", "apiVersion"))


def _is_of_certificate(extra: Any) -> bool:
    """Whether what is said of a user beside its name is only which certificate it holds."""
    credential = (extra or {}).get("authentication.kubernetes.io/credential-id", [""])
    return bool(credential[0].startswith("X509")) and len(extra) == 1


def _is_controllers(entry: Any) -> bool:
    """Whether an entry of managedFields is of a controller, which writes whenever it comes round."""
    return isinstance(entry, dict) and entry.get("manager") == "kube-controller-manager"


def _metadata(value: Any) -> Iterator[dict[str, Any]]:
    """Every `metadata` of an object, however deep."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "metadata" and isinstance(each, dict):
                yield each
            yield from _metadata(each)
    elif isinstance(value, list):
        for each in value:
            yield from _metadata(each)


def _object_versions(observations: list[Observation]) -> Iterator[str]:
    for metadata in _metadata(observations):
        version = str(metadata.get("resourceVersion", ""))
        if metadata.get("name") and version.isdigit():
            yield version
    for observation in _all(observations):
        version = str((observation.get("parts") or {}).get("metadata.resourceVersion") or "")
        if version.isdigit():
            yield version


def _all(observations: list[Observation]) -> Iterator[dict[str, Any]]:
    for each in observations:
        yield each
        yield from each.get("events") or ()


def _generated(observations: list[Observation]) -> Iterator[tuple[str, str]]:
    for metadata in _metadata(observations):
        prefix, name = metadata.get("generateName"), metadata.get("name") or ""
        if prefix and _SUFFIX.search(name):
            yield name, f"{name[:-5]}<random>"
