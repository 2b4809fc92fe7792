"""A container whose command calls a launcher, and the same with elasticjob run in its place. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename
from typing import Any, Final

from elasticjob.api.v1alpha1.checks.launchers import PYTHON, SHELLS
from elasticjob.cli.convert.launchers.launch import Launch, abridge, words_of
from elasticjob.cli.convert.launchers.shell import PRINTS, Call, assignments, calls
from elasticjob.cli.convert.launchers.table import File, Match, found_in, no_file
from elasticjob.cli.convert.system import Note, Verdict
from elasticjob.kube.objects.kinds import Manifest

INSTALLERS: Final = ("pip", "venv", "ensurepip")
PREPARES: Final = re.compile(f"cd|export|ulimit|:|{PRINTS.pattern}")
ONCE: Final = "ran once, beside the launcher: it is run now on each of"
AS_IT_WAS: Final = "a job has one training, the first: make another job of this one"
OPEN: Final = "a quotation mark is not closed: no shell runs the script"
THE_IMAGE: Final = "the image needs elasticjob (docs/own-image.md)"


@dataclass(frozen=True)
class Rewritten:
    """A container, and the launch that its command asks for; None where it calls no launcher."""

    container: Manifest
    launch: Launch | None = None
    field: str = "command"
    """The field in which the launcher is called."""

    def notes(self, path: str) -> tuple[Note, ...]:
        """Return the notes on the launcher's flags, for a container at this path."""
        if self.launch is None:
            return ()
        field = f"{path}.{self.field}"
        called = Note(
            None, field, Verdict.KEPT, f"elasticjob run in place of {self.launch.launcher}: {THE_IMAGE}"
        )
        return (called, *(replace(note, field=f"{field} {note.field}") for note in self.launch.all_notes))


def rewritten(
    container: Mapping[str, Any],
    *,
    variables: Mapping[str, str] | None = None,
    file: File = no_file,
    plainly: bool = False,
    defaults: Launch | None = None,
) -> Rewritten:
    """Return the container with elasticjob run in place of its launcher, if it calls one.

    `plainly`: Python without a launcher counts, too. `defaults`: the system's settings.
    """
    command, args = (list(map(str, list_of(container.get(field)))) for field in ("command", "args"))
    known = {**_variables(container), **(variables or {})}
    given = dict(container)
    for field, texts in (("command", [*command, *args]), ("args", args)):
        if not texts or (field == "args" and command):
            continue
        line = _script(texts)
        if line is not None:
            text, launch = in_script(texts[line], known, file, plainly, defaults)
            texts[line] = text
        else:
            found = found_in(words_of(texts), variables=known, file=file, plainly=plainly)
            launch = beside(found.launch, defaults) if found else None
            if found and launch:
                texts = [*texts[: found.before], *launch.command()]
        if launch is None:
            continue
        written = {"command": texts} if command else {"args": texts}
        made = {name: value for name, value in given.items() if name not in ("command", "args")} | written
        return Rewritten(_with_environment(made, launch), launch, "command" if command else "args")
    return Rewritten(given)


def in_script(
    script: str,
    variables: Mapping[str, str],
    file: File = no_file,
    plainly: bool = False,
    defaults: Launch | None = None,
) -> tuple[str, Launch | None]:
    """Return a shell's script with elasticjob run in place of the launcher that it calls first."""
    known, later = dict(variables), None
    for call in calls(script):
        known |= assignments(call, known)
        found = found_in(call.words, variables=known, file=file)
        if found is None and plainly and (last := found_in(call.words, variables=known, plainly=True)):
            later = (call, last) if last.launch.script not in ("", *INSTALLERS) else later
        if found is None or not found.launch.script:
            continue
        return _replace(script, call, found, defaults)
    if later is not None:  # the last Python of a script trains: those before it prepare
        call, found = later
        return _replace(script, call, found, defaults)
    return script, None


def _replace(script: str, call: Call, found: Match, defaults: Launch | None) -> tuple[str, Launch]:
    launch = beside(found.launch, defaults)
    nodes = defaults.nodes[1] if defaults and defaults.nodes else 1
    start, others = call.starts[found.before], [each for each in calls(script) if each != call]
    last = [*calls(script)][-1].words[-1]
    if last.plain == last.raw and re.search(r"^[^`]*['\"]", last.raw):
        launch = launch.note("-c", Verdict.CHANGED, OPEN)
    for other in others:
        if found_in(other.words):
            launch = launch.note(abridge(other.words), Verdict.CHANGED, AS_IT_WAS)
        elif nodes > 1 and not PREPARES.fullmatch(other.words[0].plain) and not assignments(other, {}):
            launch = launch.note(abridge(other.words), Verdict.CHANGED, f"{ONCE} {nodes} nodes")
    return script[:start] + " ".join(launch.command(quoted=True)) + script[call.end :], launch


def beside(launch: Launch, defaults: Launch | None) -> Launch:
    """Return the launch; settings of the system fill in what the command line leaves open."""
    if defaults is None:
        return launch
    is_python = PYTHON.fullmatch(launch.launcher) is not None
    return replace(
        launch,
        processes=launch.processes or ("" if launch.total is not None or is_python else defaults.processes),
        flags=(*defaults.flags, *launch.flags),
        slots=defaults.slots,
        nodes=launch.nodes or defaults.nodes,
    )


def _script(texts: Sequence[str]) -> int | None:
    """Return which word of a command is a shell's script; None if it starts no shell with one."""
    if basename(texts[0]) not in SHELLS:
        return None
    return next((at + 1 for at, text in enumerate(texts[:-1]) if re.fullmatch(r"-\w*c", text)), None)


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables whose values a container gives."""
    env = [each for each in list_of(container.get("env")) if isinstance(each, dict)]
    return {str(each["name"]): str(each["value"]) for each in env if each.get("name") and "value" in each}


def _with_environment(container: Manifest, launch: Launch) -> Manifest:
    """Return a container with the variables that the launcher would set, but for those that it has."""
    env = list(list_of(container.get("env")))
    there = {str(each.get("name")) for each in env if isinstance(each, dict)}
    new = [{"name": name, "value": value} for name, value in launch.environment.items() if name not in there]
    return {**container, "env": [*env, *new]} if new else container


def list_of(value: Any) -> list[Any]:
    """Return the members of a list; none of a value of another type."""
    return value if isinstance(value, list) else []
