"""Errors of the client.

ClientError                    object, field, next_step
├── NotFound                   no such job; or the cluster does not know ElasticJobs
├── AlreadyThere               a job of this name exists
├── Refused                    the API server or the webhook refuses the object; `field` is the path
├── Denied                     the user has no right, or is not known
├── Unreachable                no cluster, or no answer
├── TimedOut                   what was waited for did not happen in time
├── JobFailed                  the job failed, or ended in another way than was waited for
└── Unusable                   what is to be submitted cannot be: a lambda, a missing file, too large
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elasticjob.kube import errors as kube


class ClientError(Exception):
    """What went wrong with which object and field, and what to do next."""

    def __init__(self, message: str, *, object: str = "", field: str = "", next_step: str = "") -> None:
        super().__init__(message)
        self.object = object
        self.field = field
        self.next_step = next_step

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}; {self.next_step}" if self.next_step else message


class NotFound(ClientError):
    """There is no such object, or the cluster does not know the kind."""


class AlreadyThere(ClientError):
    """An object of this name exists."""


class Refused(ClientError):
    """The API server or a webhook refuses the object or the change."""


class Denied(ClientError):
    """The user may not do this, or the cluster does not know the user."""


class Unreachable(ClientError):
    """There is no cluster to ask, or no answer from it."""


class TimedOut(ClientError):
    """What was waited for did not happen in time."""


class JobFailed(ClientError):
    """The job failed, or has ended without what was waited for."""


class Unusable(ClientError):
    """What was given cannot be submitted."""


NOT_INSTALLED = "install the operator: elasticjob crds --apply, or docs/install.md"
NO_MATTER_OF_RIGHTS = ("admission webhook", "exceeded quota")
"""In the messages of a 403 that no role mends."""
OTHER_VERSION = "elasticjob get -o yaml shows it; elasticjob doctor compares the versions"


@contextmanager
def about(object: str, *, missing: str = "elasticjob list shows the jobs of a namespace") -> Iterator[None]:
    """Raise errors of requests about an object as those of the client; `missing`: what to do about a 404."""
    try:
        yield
    except kube.KubeError as error:
        raise of(error, object, missing) from error


def of(error: kube.KubeError, object: str, missing: str = "") -> ClientError:
    """Return an error of a request as one of the client."""
    match error:
        case kube.AlreadyExists():
            return AlreadyThere(f"{object} exists already", object=object)
        case kube.NotFound() if error.details.get("kind") == "namespaces":
            return no_namespace(error.details.get("name", ""))
        case kube.NotFound() if not error.details.get("name"):
            return NotFound(
                f"{object}: the cluster does not know this kind", object=object, next_step=NOT_INSTALLED
            )
        case kube.NotFound():
            return NotFound(f"{object} does not exist", object=object, next_step=missing)
        case kube.Forbidden() if error.details.get("causes") or any(
            sign in error.message for sign in NO_MATTER_OF_RIGHTS
        ):
            return _refused(error, object)
        case kube.Forbidden() | kube.Unauthorized():
            return _denied(error, object)
        case kube.ApiError(status=status) if status < 500:
            return _refused(error, object)
        case kube.Undecodable():
            why = str(error)[:300]
            return ClientError(f"{object}: {why}", object=object, next_step=OTHER_VERSION)
        case kube.ConfigError():
            step = "log in again, give another --context, give --kubeconfig, or set KUBECONFIG"
            return Unreachable(str(error), object=object, next_step=step)
        case _:
            return Unreachable(
                f"{object}: {error}", object=object, next_step="try again when the API server answers"
            )


def no_namespace(name: str) -> NotFound:
    """Return the error of a namespace that is missing."""
    step = f"create it: kubectl create namespace {name}, or give another one with -n"
    return NotFound(f"namespace {name} does not exist", object=f"Namespace {name}", next_step=step)


def _denied(error: kube.Forbidden | kube.Unauthorized, object: str) -> Denied:
    """Return an error that names verb, resource and namespace, and the command that asks about them."""
    asked = error.asked
    act = f"you may not {asked.in_words}: " if asked else ""
    step = "ask for the role elasticjob-edit or elasticjob-view (config/rbac/users.yaml)"
    if asked and not asked.namespace:
        step = "ask an administrator of the cluster"
    if asked and asked.can_i:
        step = f"{asked.can_i} says whether you may; {step}"
    if isinstance(error, kube.Unauthorized):
        act = f"the API server does not know you and refuses to {asked.in_words}: " if asked else ""
        step = (
            "log in again: the token or certificate of the kubeconfig may have expired (kubectl auth whoami)"
        )
    return Denied(f"{object}: {act}{error.message}", object=object, next_step=step)


def _refused(error: kube.ApiError, object: str) -> Refused:
    causes = [cause for cause in error.causes if cause.get("message")]
    field = causes[0].get("field", "") if causes else ""
    told = "; ".join(
        f"{cause['field']}: {cause['message']}" if cause.get("field") else cause["message"]
        for cause in causes
    )
    return Refused(f"{object} is refused: {told or error.message}", object=object, field=field)
