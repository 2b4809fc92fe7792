"""Request bodies: JSON, and YAML for applies, decoded; duplicate keys are reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from elasticjob.devcluster.server.model.errors import bad_request
from elasticjob.kube.json import JsonReader

_ANY: JsonReader[Any] = JsonReader(Any)


class Repeating(dict[str, Any]):
    """A decoded object somewhere in which a name stood twice; `repeated` tells where, as the real server
    does.
    """

    repeated: list[str]


def parse(body: bytes, *, yaml_too: bool = False) -> Any:
    """A decoded body, or BadRequest with the place of the mistake."""
    try:
        value = _ANY.decode(body)
    except msgspec.DecodeError as error:
        if not yaml_too:
            raise bad_request(f"the body of the request is not valid JSON: {error}") from error
    else:
        return _mark(body, value)
    try:
        value = yaml.load(body, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    if b"*" in body and not _is_written_out(value):
        raise bad_request("error decoding YAML: yaml: document contains excessive aliasing")
    return value


_MOST_NODES = 1_000_000


def _is_written_out(value: Any) -> bool:
    """Whether a value stays of a bearable size without its aliases, each of which may hold others."""
    nodes, left = 0, [value]
    while left and nodes <= _MOST_NODES:
        nodes += 1
        each = left.pop()
        left.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
    return nodes <= _MOST_NODES


def syntax_problem(body: bytes) -> str:
    """The error of Go's JSON decoder for a body; "" if it is JSON."""
    try:
        _ANY.decode(body)
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            return "unexpected end of JSON input"
        return f"invalid character: {error}"
    return ""


class _Note(dict[str, Any]):
    """An object as it is decoded, with the names that stood in it more than once."""

    twice: list[str]


def _note(pairs: list[tuple[str, Any]]) -> _Note:
    answer = _Note(pairs)
    counts = Counter(name for name, _ in pairs) if len(pairs) > len(answer) else {}
    answer.twice = [name for name, count in counts.items() if count > 1]
    return answer


def _mark(body: bytes, value: Any) -> Any:
    """The value; a Repeating where decoding dropped a name."""
    if not isinstance(value, dict) or _names(value) >= body.count(b'":') + body.count(b'" :'):
        return value
    found = list(_repeats(json.loads(body, object_pairs_hook=_note), ""))
    if not found:
        return value
    answer = Repeating(value)
    answer.repeated = [f'duplicate field "{path}"' for path in found]
    return answer


def _repeats(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Note):
        yield from (f"{path}{name}" for name in value.twice)
        for name, child in value.items():
            yield from _repeats(child, f"{path}{name}.")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _repeats(child, f"{path.removesuffix('.')}[{index}].")


def _names(value: Any) -> int:
    """How many names a value has at every depth: each takes a `":` of the text, which texts may hold as
    well.
    """
    if isinstance(value, dict):
        return len(value) + sum(_names(each) for each in value.values())
    if isinstance(value, list):
        return sum(_names(each) for each in value)
    return 0


_STRINGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


class _Loader(yaml.SafeLoader):
    """YAML as Go reads it: a timestamp stays a string, and so does a lone `=`."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _STRINGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
