"""The result of a decision: writes, when to look again, and why, as a reason and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts.owners import Ownership
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD

NAME_TAKEN: Final = "NameTaken"
"""The reason of a plan that waits until another owner's object is gone."""
REFUSED: Final = "Refused"
"""The reason of a plan that the server did not accept."""
SOON: Final = timedelta(seconds=1)
"""When to look again at what others are about to finish."""
LATER: Final = timedelta(seconds=15)
"""The same, if a person may have to act first."""


@dataclass(frozen=True)
class Create:
    """Create an object, unless it exists already with the same owner.

    The plan does not depend on an object that is `optional`: the server may refuse it. One that is
    `handed_on` to the master may be of a master of an earlier release, which did not name its owner as the
    controller.
    """

    kind: Kind[Any]
    manifest: Manifest
    optional: bool = False
    handed_on: bool = False


@dataclass(frozen=True)
class CreateOrApply:
    """Create an object; where its owner has it already, server-side apply of all fields of it."""

    kind: Kind[Any]
    manifest: Manifest


@dataclass(frozen=True)
class Apply:
    """Server-side apply of all fields of an object, or of its `status`, that this controller owns.

    It is forced, so the manifest names the uid of the object: one of the same name may be another's.
    """

    kind: Kind[Any]
    manifest: Manifest
    subresource: str = ""


@dataclass(frozen=True)
class Delete:
    """Delete the object of this uid, if it is still there. `grace` 0 does not wait for its machine.

    `version`: only at this resourceVersion, so that a newer status is not lost.
    """

    kind: Kind[Any]
    name: str
    uid: str
    grace: int | None = None
    version: str | None = None


@dataclass(frozen=True)
class DeleteOwned:
    """Delete the object of this name if it is there and `owner` controls it, a uid: no cache shows it."""

    kind: Kind[Any]
    name: str
    owner: str


def deletion(life: Life, *, as_seen: bool = False) -> Delete:
    """Return the deletion of a pod, at once if its machine is gone; `as_seen`: at no newer version."""
    version = (life.version or None) if as_seen else None
    return Delete(POD, life.name, life.uid, grace=0 if life.lost else None, version=version)


@dataclass(frozen=True)
class Resize:
    """Change the resources of a running container, and write for which resource of its node.

    Where the server refuses, the pod is marked for replacement.
    """

    pod: str
    uid: str
    container: str
    resources: Manifest
    resource: Mapping[str, str]


@dataclass(frozen=True)
class Patch:
    """A merge patch of the object of this uid; one that is gone needs none.

    `version`: only at this resourceVersion, as for lists, which a patch replaces. `frees`: with it the object
    gives back what pods must not use any more.
    """

    kind: Kind[Any]
    name: str
    uid: str
    body: Manifest
    subresource: str = ""
    version: str | None = None
    frees: bool = False


Action = Create | CreateOrApply | Apply | Delete | DeleteOwned | Resize | Patch


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    succeeded: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Note:
    """An event and a log line, about what happened so many times."""

    reason: str
    sentence: str
    warning: bool = False
    times: int = 1


@dataclass(frozen=True)
class Plan:
    """Groups of writes, one after another, the members of a group at once; `reason` and `sentence` say why.

    They become an event if the plan writes something, unless it is quiet or has details instead.
    `obstacle` has a name that the plan wanted, and may be an orphan.
    """

    reason: str = "AsSpecified"
    sentence: str = ""
    groups: tuple[tuple[Action, ...], ...] = ()
    again_in: timedelta | None = None
    outcome: Outcome | None = None
    details: tuple[Note, ...] = ()
    quiet: bool = False
    obstacle: Ownership | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """All writes, in order."""
        return tuple(action for group in self.groups for action in group)

    @property
    def notes(self) -> tuple[Note, ...]:
        """The events of this plan; none if it writes nothing."""
        if self.quiet or not self.actions:
            return ()
        return self.details or ((Note(self.reason, self.sentence),) if self.sentence else ())

    def again_by(self, delay: timedelta | None) -> Plan:
        """Return this plan, looking again after `delay` at the latest; None changes nothing."""
        again_in = soonest((self.again_in, delay))
        return self if again_in == self.again_in else replace(self, again_in=again_in)

    def without(self, kind: Kind[Any]) -> Plan:
        """Return this plan without the creations of a kind, and without its events."""
        kept = ((a for a in g if not (isinstance(a, Create) and a.kind is kind)) for g in self.groups)
        return replace(self, groups=tuple(map(tuple, kept)), quiet=True)


AS_SPECIFIED = Plan()


def group(actions: Iterable[Action]) -> tuple[tuple[Action, ...], ...]:
    """Return the groups of a plan whose writes need no order."""
    writes = tuple(actions)
    return (writes,) if writes else ()


def soonest(delays: Iterable[timedelta | None]) -> timedelta | None:
    """Return the shortest delay, at least zero; None where there is none."""
    known = [delay for delay in delays if delay is not None]
    return max(min(known), timedelta(0)) if known else None
