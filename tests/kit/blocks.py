"""The code blocks of pages, and what can be said of each without running it."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from elasticjob.api.v1alpha1.checks import elasticjob as jobs
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.older import todays_job
from elasticjob.cli.main import application
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.admitted import KINDS, by_definition

ROOT: Final = Path(__file__).parents[2]
FENCE: Final = re.compile(r"^([ ]*)```(\w*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
TEMPLATE: Final = "{spec: {containers: [{name: main, image: i, command: [train]}]}}"
"""What `{…}` stands for in a manifest."""
OTHERS: Final = frozenset(
    {"amtool", "apt-get", "argocd", "base64", "bash", "cat", "cd", "cp", "ctr", "curl", "docker", "echo"}
    | {"export", "flux", "git", "grep", "head", "jq", "kill", "kustomize", "mkdir", "nft", "openssl", "oras"}
    | {"promtool", "ps", "sed", "sort", "tail", "torchrun", "xargs", "yq"}
)
"""Programs that are not ours, of which no option is looked at."""


NESTED: Final = frozenset({"auth", "config", "create", "rollout", "set"})
"""Verbs of kubectl that have verbs of their own."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        body = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield Block(str(page.relative_to(ROOT)), text.count("\n", 0, found.start()) + 1, found[2], body)


def python_problems(text: str) -> list[str]:
    """Return why a piece of Python is wrong: it does not compile, or imports what we do not have."""
    try:
        tree = compile(text, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        return [str(error)]
    return [".".join(name) for name in _imported(tree) if not _is_there(name)]


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.startswith("elasticjob"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elasticjob"):
            yield from ((str(node.module), each.name) for each in node.names)


def _is_there(name: tuple[str, str]) -> bool:
    """Whether a module of ours has the member, by its text: no process can import all training frameworks."""
    module, member = name
    place = ROOT.joinpath(*module.split("."))
    source = next(
        (each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()), None
    )
    if source is None:
        return False
    return (
        not member or member in _names(source) or any(place.glob(f"{member}.py")) or (place / member).is_dir()
    )


@cache
def _names(source: Path) -> frozenset[str]:
    """Return the names that a module defines, imports or lists in __all__."""
    found = set[str]()
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Import() | ast.ImportFrom():
                found.update(each.asname or each.name for each in node.names)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=listed)):
                found.update(str(each.value) for each in listed if isinstance(each, ast.Constant))
    return frozenset(found)


def yaml_problems(text: str) -> list[str]:
    """Return why manifests are wrong: those of our kinds by schema and admission, others as YAML."""
    read = yaml.safe_load_all(text.replace("{…}", TEMPLATE))
    return [problem for one in read if isinstance(one, dict) for problem in _object_problems(one)]


def _object_problems(given: Manifest) -> list[str]:
    spec = given.get("spec")
    if "kind" not in given and isinstance(spec, dict):
        given = {"kind": "ElasticJob", "spec": _around(spec) if "containers" in spec else spec}
    declaration = KINDS.get(str(given.get("kind")))
    if declaration is None:
        return []
    whole = {"apiVersion": declaration.kind.api_version, **given}
    metadata = {"name": "page", "namespace": "page", **whole.pop("metadata", {})}
    found = by_definition(whole)
    if found or declaration.kind is not ELASTICJOB:
        return found
    spec = dict(todays_job(whole["spec"]))
    if not spec.get("replicaSpecs"):
        spec["replicaSpecs"] = yaml.safe_load(f"{{worker: {{template: {TEMPLATE}}}}}")
    return [
        str(problem)
        for problem in jobs.problems(ELASTICJOB.convert({**whole, "metadata": metadata, "spec": spec}))
    ]


def _around(pod: Manifest) -> Manifest:
    """Return the spec of a job whose workers have this pod spec; a page may leave out images."""
    containers = [{"image": "i", "command": ["train"], **each} for each in pod["containers"]]
    return {"replicaSpecs": {"worker": {"template": {"spec": {**pod, "containers": containers}}}}}


def shell_problems(text: str) -> list[str]:
    """Return why lines of a shell are wrong: programs, options and targets that are not there."""
    return [problem for words in _commands(text) if (problem := _command_problem(words))]


def _commands(text: str) -> Iterator[list[str]]:
    """Find the simple commands: where lines begin with `$ ` these alone, the others are output."""
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        bare = re.sub(r"(^|\s)# .*$", "", re.sub(r"\$\([^)]*\)", "X", line))
        lexer = shlex.shlex(bare, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        found: list[str] = []
        for token in lexer:
            if set(token) <= set(";&|()"):
                yield found
                found = []
            else:
                found.append(token)
        yield found


def _command_problem(words: list[str]) -> str:
    while words and re.match(r"[A-Z_a-z]\w*=", words[0]):
        words = words[1:]
    words = [word for word in words if word != "…"]
    if not words:
        return ""
    program, given = words[0].removeprefix(".venv/bin/"), words[1:]
    if check := CHECKS.get(program):
        return check(given)
    if program in OTHERS or (ROOT / program).is_file():
        return ""
    return f"there is no program {program}"


def _elasticjob(given: list[str]) -> str:
    if not given or given[0].startswith("-"):
        return ""
    group: Any = typer.main.get_command(application(given))
    rest, name = given[1:], given[0]
    command = group.commands.get(name)
    while command is not None and getattr(command, "commands", None) and rest:
        name, rest = rest[0], rest[1:]
        command = command.commands.get(name)
    if command is None:
        return f"elasticjob has no command {name}"
    context = command.context_class(command, **command.context_settings)
    try:
        command.make_parser(context).parse_args(args=list(rest))
    except Exception as error:  # of click, or of the copy of it that typer has
        return f"elasticjob {name}: {error}"
    return ""


def _kubectl(given: list[str]) -> str:
    program = shutil.which("kubectl")
    words = [word for word in given if not word.startswith("-")]
    if program is None or not words:
        return ""
    verb = next((word for word in given if word in _verbs(program)), None)
    if verb is None:
        return f"kubectl has no verb among {given}"
    after = [word for word in given[given.index(verb) + 1 :] if not word.startswith("-")]
    known = _printed(program, verb, *(after[:2] if verb in NESTED else ()), "--help")
    known += _printed(program, "options")
    own = given[: given.index("--")] if "--" in given else given
    flags = [found[0] for word in own if (found := re.match(r"--?[a-zA-Z][\w-]*", word))]
    unknown = [flag for flag in flags if not re.search(rf"(^|[\s,]){flag}[=,\s:]", known)]
    return f"kubectl {verb} does not know {unknown}" if unknown else ""


@cache
def _verbs(program: str) -> frozenset[str]:
    return frozenset(re.findall(r"^  ([a-z-]+) +[A-Z]", _printed(program, "--help"), re.MULTILINE))


@cache
def _printed(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _helm(given: list[str]) -> str:
    values = yaml.safe_load((ROOT / "charts" / "elasticjob" / "values.yaml").read_text())
    texts = [value for flag, value in pairwise(given) if flag == "--set"]
    texts += [word.partition("=")[2] for word in given if word.startswith("--set=")]
    keys = [pair.partition("=")[0] for text in texts for pair in text.split(",")]
    missing = [key for key in keys if not _has(values, key)]
    return f"the chart has no value {missing}" if missing else ""


def _has(values: Any, key: str) -> bool:
    for part in re.sub(r"\[\d+\]", ".", key).split("."):
        if not part or not isinstance(values, Mapping) or not values:
            return True  # below a list or a map that is empty by default
        if part not in values:
            return False
        values = values[part]
    return True


def _make(given: list[str]) -> str:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    missing = [word for word in given if "=" not in word and word not in targets]
    return f"make has no target {missing}" if missing else ""


def _pip(given: list[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.findall(r"(?:elasticjob|\.)\[([\w,]+)\]", " ".join(given))
    missing = [extra for each in asked for extra in each.split(",") if extra not in extras]
    return f"there is no extra {missing}" if missing else ""


def _python(given: list[str]) -> str:
    if given[:1] != ["-m"]:
        return ""
    path = ROOT / given[1].replace(".", "/")
    there = path.is_dir() or path.with_suffix(".py").is_file() or (ROOT / given[1].partition(".")[0]).exists()
    if not there and importlib.util.find_spec(given[1].partition(".")[0]) is None:
        return f"there is no module {given[1]}"
    return ""


CHECKS: Final = {
    "elasticjob": _elasticjob,
    "kubectl": _kubectl,
    "helm": _helm,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "python3": _python,
}
