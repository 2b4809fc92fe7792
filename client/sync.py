"""The client for scripts and notebooks: each verb waits for its answer."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.client.client import Client
from elasticjob.client.described import Description
from elasticjob.client.logs import Line
from elasticjob.client.objects import Options
from elasticjob.client.understood import ALL, Filter
from elasticjob.kube.objects.views import Event

T = TypeVar("T")


class SyncClient:
    """The verbs of `Client` as plain methods: `with SyncClient() as client`, or `open` and `close`.

    It works where a loop runs already, as in a notebook: its own is in another thread.
    """

    def __init__(
        self,
        namespace: str = "",
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        tell: Callable[[str], object] | None = None,
        dry_run: bool = False,
    ) -> None:
        """As of `Client`."""
        self._client = Client(namespace, kubeconfig=kubeconfig, context=context, tell=tell, dry_run=dry_run)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def open(self) -> Self:
        """Connect. Raises Unreachable where there is no cluster."""
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="elasticjob-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the connection, and end the thread."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._client.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Return a job. Raises NotFound."""
        return self._run(self._client.get(name, namespace=namespace))

    def list(
        self, *, namespace: str = "", all_namespaces: bool = False, labels: str = ""
    ) -> builtins.list[ElasticJob]:
        """Return the jobs of a namespace, or of all; `labels` is a label selector."""
        return self._run(self._client.list(namespace=namespace, all_namespaces=all_namespaces, labels=labels))

    def events(self, name: str, *, namespace: str = "") -> builtins.list[Event]:
        """Return the events about a job, its ScalePlans and its pods, oldest first."""
        return self._run(self._client.events(name, namespace=namespace))

    def describe(self, name: str, *, namespace: str = "") -> Description:
        """Return a job with its plans, pods and events; print it to read it."""
        return self._run(self._client.describe(name, namespace=namespace))

    def logs(
        self, name: str, *nodes: str, tail: int | None = None, only: Filter = ALL, namespace: str = ""
    ) -> builtins.list[Line]:
        """Return what the present pods of a job have logged, oldest first: as `Client.logs`."""
        return self._run(self._client.logs(name, *nodes, tail=tail, only=only, namespace=namespace))

    def submit(
        self,
        script: Path | str | None = None,
        *,
        function: Callable[..., Any] | None = None,
        arguments: Sequence[object] | Mapping[str, Any] = (),
        files: Iterable[Path | str] = (),
        namespace: str = "",
        **options: Unpack[Options],
    ) -> ElasticJob:
        """Create a job that runs a script or a function: as `Client.submit`."""
        return self._run(
            self._client.submit(
                script, function=function, arguments=arguments, files=files, namespace=namespace, **options
            )
        )

    def scale(
        self, name: str, replicas: int | Mapping[str, int], *, namespace: str = "", reason: str = ""
    ) -> ElasticJob:
        """Change the number of nodes: `scale("digits", 3)`, or `scale("ads", {"worker": 4, "ps": 2})`."""
        return self._run(self._client.scale(name, replicas, namespace=namespace, reason=reason))

    def suspend(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Stop the pods of a job, and keep its progress."""
        return self._run(self._client.suspend(name, namespace=namespace))

    def resume(self, name: str, *, namespace: str = "") -> ElasticJob:
        """Start a suspended job again."""
        return self._run(self._client.resume(name, namespace=namespace))

    def delete(self, name: str, *, namespace: str = "") -> None:
        """Delete a job with all that belongs to it; claims for checkpoints stay."""
        self._run(self._client.delete(name, namespace=namespace))

    def wait(
        self, name: str, until: str = "complete", *, timeout: float | None = None, namespace: str = ""
    ) -> ElasticJob | None:
        """Return the job as soon as something is true of it: as `Client.wait`."""
        return self._run(self._client.wait(name, until, timeout=timeout, namespace=namespace))

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            verb.close()
            raise RuntimeError("the client is not open: use it in `with SyncClient() as client`")
        waiting = asyncio.run_coroutine_threadsafe(verb, self._loop)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise
