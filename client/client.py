"""The client: each verb is a method, errors are those of errors.py."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import secrets
import string
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, FINISHED, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, plan_manifest
from elasticjob.client import errors, needs
from elasticjob.client.code import Code, of_function, of_script
from elasticjob.client.described import Description, about_the_job
from elasticjob.client.following import follow_cache
from elasticjob.client.goals import Goal, goal, has_ended, state
from elasticjob.client.logs import End, Line, follow, lines
from elasticjob.client.logs import Selection as Which
from elasticjob.client.objects import JobOptions, Objects, Options, meant_otherwise, objects
from elasticjob.client.trouble import Trouble
from elasticjob.client.understood import ALL, Filter
from elasticjob.kube import errors as kube
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client as Kube
from elasticjob.kube.objects.kinds import UNSAFE, Key, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, NAMESPACE, POD, Event

LETTERS: Final = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("aeiou01l")))
REQUEST_SECONDS: Final = 15.0
"""How long a request is tried, its repetitions included."""

log = logging.getLogger(__name__)


class Client:
    """A user's view of the jobs of one cluster: `async with Client() as client`."""

    def __init__(
        self,
        namespace: str = "",
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        tell: Callable[[str], object] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Methods without a namespace mean this one, else that of the kubeconfig's context.

        With `dry_run` the API server checks each change, and stores none.
        `tell` (by default a warning of the log) is called with a sentence when the API server has been away
        for some seconds while something is waited for, and when it is back.
        """
        self._namespace = namespace
        self._kubeconfig = kubeconfig
        self._context = context
        self._tell = tell or log.warning
        self._dry_run = dry_run
        self._kube: Kube | None = None

    async def __aenter__(self) -> Self:
        with errors.about("the cluster"):
            found = await config.load(self._kubeconfig, self._context)
        self._kube = await Kube(
            found, user_agent="elasticjob-client", timeout=REQUEST_SECONDS, dry_run=self._dry_run
        ).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kube is not None:
            await self._kube.close()

    @property
    def kube(self) -> Kube:
        """The connection, for what has no verb here."""
        if self._kube is None:
            raise RuntimeError("the client is not open: use it in `async with Client() as client`")
        return self._kube

    def namespace(self, given: str = "") -> str:
        """Return the namespace that is meant where one is given, or none."""
        found = given or self._namespace or self.kube.config.namespace
        key_of(found, "any")
        return found

    # reading

    async def get(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Return a job. Raises NotFound."""
        return _fitting(await self.manifest(name, namespace=namespace))

    async def manifest(self, name: str, *, namespace: str = "") -> Manifest:
        """Return a job as the API server writes it. Raises NotFound."""
        key = self._key(name, namespace)
        try:
            with errors.about(_of(key)):
                return await self.kube.get(ELASTICJOB.untyped(), name, key.namespace)
        except errors.NotFound as error:
            await self._expect(key.namespace, error)
            raise

    async def _expect(self, namespace: str, error: errors.NotFound) -> None:
        """Raise NotFound of the namespace where that is missing, and not only an object of it."""
        with contextlib.suppress(kube.KubeError):
            if await self.kube.find(NAMESPACE, namespace) is None:
                raise errors.no_namespace(namespace) from error

    async def list(
        self, *, namespace: str = "", all_namespaces: bool = False, labels: str = ""
    ) -> builtins.list[ElasticJob]:
        """Return the jobs of a namespace, or of all, by name; `labels` is a label selector."""
        found = await self.manifests(namespace=namespace, all_namespaces=all_namespaces, labels=labels)
        return [_fitting(each) for each in found]

    async def manifests(
        self, *, namespace: str = "", all_namespaces: bool = False, labels: str = ""
    ) -> builtins.list[Manifest]:
        """Return the same jobs as the API server writes them."""
        place = None if all_namespaces else self.namespace(namespace)
        with errors.about(_jobs_of(place)):
            return await self.kube.list(ELASTICJOB.untyped(), place, labels=labels)

    async def events(self, name: str, *, namespace: str = "") -> builtins.list[Event]:
        """Return the events about a job, its ScalePlans and its pods, oldest first."""
        return list((await self.describe(name, namespace=namespace)).events)

    async def describe(self, name: str, *, namespace: str = "") -> Description:
        """Return a job with its plans, pods and events; its `text` is for people."""
        key = self._key(name, namespace)
        job = await self.get(name, namespace=namespace)
        with errors.about(_of(key)):
            plans, pods, told = await asyncio.gather(
                self.kube.list(SCALEPLAN, key.namespace),
                self.kube.list(POD, key.namespace, labels=f"{LABEL_JOB}={name}"),
                self.kube.list(EVENT, key.namespace),
            )
        return about_the_job(job, plans, pods, told)

    async def logs(
        self,
        name: str,
        *nodes: str,
        tail: int | None = None,
        previous: bool = False,
        only: Filter = ALL,
        namespace: str = "",
    ) -> builtins.list[Line]:
        """Return what the present pods of a job have logged, oldest first: of `nodes` such as worker-0 or
        master, else of all that train. `previous`: of the containers before the last restart in each pod.
        `only`: lines of a level or more serious, of a rank, from a time on."""
        key = self._key(name, namespace)
        with errors.about(_of(key)):
            return await lines(self.kube, key, Which(nodes, tail, previous, only))

    async def follow_logs(
        self,
        name: str,
        *nodes: str,
        tail: int | None = None,
        only: Filter = ALL,
        namespace: str = "",
    ) -> AsyncGenerator[Line | End, None]:
        """Yield the same, then each line as it comes and the end of each node, until the job has finished."""
        key = self._key(name, namespace)
        with errors.about(_of(key)):
            found = follow(self.kube, key, Which(nodes, tail, filter=only), heed=self._trouble())
            async with contextlib.aclosing(found) as told:
                async for each in told:
                    yield each

    # writing

    async def submit(
        self,
        script: Path | str | None = None,
        *,
        function: Callable[..., Any] | None = None,
        arguments: Sequence[object] | Mapping[str, Any] = (),
        files: Iterable[Path | str] = (),
        namespace: str = "",
        **options: Unpack[Options],
    ) -> ElasticJob:
        """Create a job that runs a script, or a function, on each node; its code travels in a ConfigMap.

        A script gets `arguments` as words, and `files` beside it; a function gets them by name, as JSON, and
        must hold its own imports. Everything else is in `Options`. The ConfigMap is deleted with the job.
        Raises Unusable, AlreadyThere, Refused, Denied.
        """
        code, wanted = (
            code_of(script, function=function, arguments=arguments, files=files),
            JobOptions(**options),
        )
        if warning := meant_otherwise(wanted):
            warnings.warn(warning, FutureWarning, stacklevel=2)
        return await self.create(self.prepare(code, wanted, namespace=namespace))

    def prepare(self, code: Code, wanted: JobOptions, *, namespace: str = "") -> Objects:
        """Return the objects that `submit` would create. Raises Unusable, Refused."""
        return objects(code, wanted, namespace=self.namespace(namespace), unique=letters())

    async def missing(self, made: Objects) -> builtins.list[str]:
        """Return a sentence for each thing that a job needs and the cluster lacks, as far as may be read."""
        job = ELASTICJOB.convert(made.job)
        there, quotas = await needs.read(self.kube, job)
        return needs.missing(job, {**there, (CONFIG_MAP, made.code["metadata"]["name"]): True}, quotas)

    async def create(self, made: Objects) -> ElasticJob:
        """Create a job and the ConfigMap with its code."""
        key = Key(made.job["metadata"]["namespace"], made.job["metadata"]["name"])
        with errors.about(_of(key)):
            code = await self._create_code(made.code, key)
            try:
                job = await self.kube.create(ELASTICJOB, made.job)
            except kube.ApiError as error:
                await self.kube.delete(CONFIG_MAP, code.metadata.name, key.namespace, uid=code.metadata.uid)
                if isinstance(error, kube.AlreadyExists):
                    raise _take(key) from error
                raise
            owner = {"metadata": {"ownerReferences": [owner_reference(job, ELASTICJOB, controller=False)]}}
            if not self._dry_run:  # nor is there a ConfigMap, then
                await self.kube.merge_patch(CONFIG_MAP, code.metadata.name, owner, key.namespace)
        return job

    async def _create_code(self, manifest: Manifest, job: Key) -> Any:
        try:
            return await self.kube.create(CONFIG_MAP, manifest)
        except kube.AlreadyExists as error:
            if await self.kube.find(ELASTICJOB.untyped(), job.name, job.namespace) is not None:
                raise _take(job) from error
            name = manifest["metadata"]["name"]
            raise errors.AlreadyThere(
                f"ConfigMap {name} exists, without its job",
                object=f"ConfigMap {name}",
                next_step=f"delete it: kubectl delete configmap {name} -n {job.namespace}",
            ) from error

    async def scale(
        self, name: str, replicas: int | Mapping[str, int], *, namespace: str = "", reason: str = ""
    ) -> ElasticJob:
        """Change the number of nodes: `scale("digits", 3)` of role worker, as kubectl scale does;
        `scale("ads", {"worker": 4, "ps": 2})`, and all with a reason, by a manual ScalePlan. Raises Refused.
        """
        key = self._key(name, namespace)
        wanted = {WORKER: replicas} if isinstance(replicas, int) else dict(replicas)
        with errors.about(_of(key)):
            job = await self.kube.get(ELASTICJOB, name, key.namespace)
            if missing := sorted(wanted.keys() - job.spec.roles.keys()):
                raise errors.Refused(
                    f"{_of(key)} has no role {missing[0]}",
                    object=_of(key),
                    field="spec.replicaSpecs",
                    next_step=f"its roles are {', '.join(job.spec.roles)}",
                )
            _expect_to_go_on(job)
            if wanted.keys() == {WORKER} and not reason:
                patch = {"spec": {"replicas": wanted[WORKER]}}
                kind = ELASTICJOB.untyped()
                await self.kube.merge_patch(kind, name, patch, key.namespace, subresource="scale")
            elif wanted:
                await self.kube.create(SCALEPLAN, _plan(job, wanted, reason))
        return await self.get(name, namespace=namespace)

    async def suspend(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Stop the pods of a job; `resume` goes on from its newest checkpoint, or anew without one.

        Raises Refused, as `resume`, where the job has ended.
        """
        return await self._patch(name, namespace, {"suspend": True})

    async def resume(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Start a suspended job again."""
        return await self._patch(name, namespace, {"suspend": False})

    async def _patch(self, name: str, namespace: str, spec: Manifest) -> ElasticJob:
        key = self._key(name, namespace)
        with errors.about(_of(key)):
            _expect_to_go_on(await self.get(name, namespace=namespace))
            return await self.kube.merge_patch(ELASTICJOB, name, {"spec": spec}, key.namespace)

    async def delete(self, name: str, *, namespace: str = "") -> None:
        """Delete a job with all that belongs to it; claims for checkpoints stay. Raises NotFound."""
        key, job = self._key(name, namespace), await self.manifest(name, namespace=namespace)
        with errors.about(_of(key)):
            await self.kube.delete(ELASTICJOB, name, key.namespace, uid=job["metadata"]["uid"])

    # waiting

    async def wait(
        self, name: str, until: str = "complete", *, timeout: float | None = None, namespace: str = ""
    ) -> ElasticJob | None:
        """Return the job as soon as something is true of it; None for one that is deleted.

        `until`: complete, running, training, suspended, failed, ended, deleted, condition=TYPE, phase=PHASE
        or jsonpath={.status.training.step}=100. `timeout` in seconds. Raises TimedOut; NotFound; JobFailed
        where the job ends otherwise.
        """
        wanted, key = goal(until), self._key(name, namespace)
        last: Manifest = {}
        try:
            async with asyncio.timeout(timeout):
                async with contextlib.aclosing(self.follow(name, namespace=namespace)) as states:
                    async for last in states:
                        if _is_reached(wanted, last, key):
                            return _fitting(last)
        except TimeoutError as error:
            waited = f"{timeout:g} s" if timeout is not None else "its time"
            message = (
                f"{_of(key)}: not {wanted.text} within {waited}: {state(last) if last else 'no answer yet'}"
            )
            step = f"elasticjob describe {name} -n {key.namespace} shows why"
            raise errors.TimedOut(message, object=_of(key), next_step=step) from error
        except errors.NotFound:
            if not wanted.deletion:
                raise
        if wanted.deletion:
            return None
        raise errors.NotFound(f"{_of(key)} was deleted before it was {wanted.text}", object=_of(key))

    async def follow(self, name: str, *, namespace: str = "") -> AsyncGenerator[Manifest, None]:
        """Yield a job as it is and after each change, until it is deleted. Raises NotFound at first."""
        key = self._key(name, namespace)
        yield (first := await self.manifest(name, namespace=namespace))
        cache = Cache(ELASTICJOB.untyped(), key.namespace, fields=f"metadata.name={name}")
        with errors.about(_of(key)):
            async with follow_cache(self.kube, cache, self._trouble()) as states:
                async for _ in states:
                    found = cache.get(key)
                    if found is None or found["metadata"]["uid"] != first["metadata"]["uid"]:
                        return
                    yield found

    async def follow_all(
        self, *, namespace: str = "", all_namespaces: bool = False, labels: str = ""
    ) -> AsyncGenerator[builtins.list[Manifest], None]:
        """Yield the jobs of a namespace, or of all, as they are and after each change."""
        place = "" if all_namespaces else self.namespace(namespace)
        yield await self.manifests(namespace=namespace, all_namespaces=all_namespaces, labels=labels)
        cache = Cache(ELASTICJOB.untyped(), place, labels=labels)
        with errors.about(_jobs_of(place)):
            async with follow_cache(self.kube, cache, self._trouble()) as states:
                async for _ in states:
                    yield cache.list()

    def _trouble(self) -> Trouble:
        return Trouble(self.kube.config.server, self._tell)

    def _key(self, name: str, namespace: str) -> Key:
        return key_of(self.namespace(namespace), name)


def key_of(namespace: str, name: str) -> Key:
    """Return the key of a job. Raises Unusable for names that would be another address of the API server."""
    for what, text in (("namespace", namespace), ("job", name)):
        if not text or UNSAFE.search(text):
            step = "elasticjob list shows the jobs of a namespace"
            raise errors.Unusable(f"{text!r} is no name of a {what}", field=what, next_step=step)
    return Key(namespace, name)


def code_of(
    script: Path | str | None,
    *,
    function: Callable[..., Any] | None = None,
    arguments: Sequence[object] | Mapping[str, Any] = (),
    files: Iterable[Path | str] = (),
) -> Code:
    """Return the code of a submission. Raises Unusable."""
    if (script is None) == (function is None):
        raise errors.Unusable("nothing, or two things, to submit", next_step="give a script, or function=")
    if script is not None:
        if isinstance(arguments, Mapping | str):
            step = 'write ["--epochs", 3]'
            raise errors.Unusable("the arguments of a script are words", field="arguments", next_step=step)
        return of_script(Path(script), arguments, [Path(each) for each in files])
    assert function is not None
    if not isinstance(arguments, Mapping):
        if arguments:
            step = 'write {"epochs": 3}'
            raise errors.Unusable("the arguments of a function have names", field="arguments", next_step=step)
        arguments = {}
    if files := list(files):
        raise errors.Unusable("a function has no files beside it", field="files", next_step="submit a script")
    return of_function(function, arguments)


def letters(count: int = 5) -> str:
    """Return random letters that make a name unique."""
    return "".join(secrets.choice(LETTERS) for _ in range(count))


def _expect_to_go_on(job: ElasticJob) -> None:
    if job.status.phase in FINISHED:
        raise errors.Refused(
            f"{_of(job.key)} has {job.status.phase} and does not start again",
            object=_of(job.key),
            field="status.phase",
            next_step="delete it, and create it again",
        )


def _is_reached(wanted: Goal, job: Manifest, key: Key) -> bool:
    if wanted.holds(job):
        return True
    if has_ended(job) and not wanted.deletion:
        message = f"{_of(key)} has ended and will not be {wanted.text}: {state(job)}"
        step = f"elasticjob describe {key.name} -n {key.namespace} shows why"
        raise errors.JobFailed(message, object=_of(key), next_step=step)
    return False


def _plan(job: ElasticJob, wanted: Mapping[str, int], reason: str) -> Manifest:
    sizes = {role: {"replicas": count} for role, count in wanted.items()}
    spec: Manifest = {
        "replicaResourceSpecs": sizes,
        "manualScaling": True,
        "reason": reason or "asked for with elasticjob scale",
    }
    owner = owner_reference(job, ELASTICJOB, controller=False)
    return plan_manifest(f"{job.metadata.name}-user-{letters()}", job.key, spec, owner, manual=True)


def _fitting(job: Manifest) -> ElasticJob:
    try:
        return ELASTICJOB.convert(job)
    except ValueError as error:
        about = job["metadata"]
        of = _of(Key(about.get("namespace", ""), about["name"]))
        message = f"{of} does not fit this version: {str(error)[:300]}"
        raise errors.ClientError(message, object=of, next_step=errors.OTHER_VERSION) from error


def _take(key: Key) -> errors.AlreadyThere:
    return errors.AlreadyThere(
        f"{_of(key)} exists",
        object=_of(key),
        next_step=f"give another --name, or delete it: elasticjob delete {key.name} -n {key.namespace}",
    )


def _of(key: Key) -> str:
    return f"ElasticJob {key}"


def _jobs_of(namespace: str | None) -> str:
    return f"ElasticJobs of {namespace or 'all namespaces'}"
