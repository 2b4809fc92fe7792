"""Pods on a dev cluster: they run, log, end, restart, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticjob.devcluster import DevCluster, StateInUse
from elasticjob.kube.errors import ApiError
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    ContainerTerminated,
    Pod,
)
from lab.waiting import until
from tests.kit.devcluster.live import Live, is_alive, live, manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")


CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
EMPTY = {"name": "v", "emptyDir": {}}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
CLAIMED = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A container that reads it goes on once a test has written to it."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def end_of(pod: Pod) -> ContainerTerminated:
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None, pod.status
    return end


def restarts(pod: Pod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses)


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def waiting(pod: Pod) -> str:
    statuses = pod.status.container_statuses
    return statuses[0].state.waiting.reason if statuses and statuses[0].state.waiting else ""


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 3", "Failed", 3, "Error"),
        ("kill -9 $$$$", "Failed", 137, "Error"),
        ("kill -15 $$$$", "Failed", 143, "Error"),
    ],
)
async def test_how_a_pod_ends(cluster: Live, script: str, phase: str, code: int, reason: str) -> None:
    await cluster.start("p", "sh", "-c", script)
    pod = await cluster.finished("p")
    end = end_of(pod)
    assert (pod.status.phase, end.exit_code, end.reason) == (phase, code, reason)
    await cluster.until(lambda: {"Scheduled", "Pulled", "Created", "Started"} <= cluster.reasons("p"))


async def test_logs_of_a_pod(cluster: Live, gate: Path) -> None:
    """It says the last word when the others, of two streams, have been read."""
    await cluster.start("p", "sh", "-c", f"echo one; echo two >&2; read x < {gate}; printf three")
    await cluster.logged("p", "one")
    await cluster.logged("p", "two")
    await asyncio.to_thread(gate.write_text, "\n")
    await cluster.finished("p")
    assert await cluster.logs("p") in ("one\ntwo\nthree", "two\none\nthree")
    assert await cluster.logs("p", tail=1) == "three"


async def test_following_a_log_ends_with_the_container(cluster: Live, gate: Path) -> None:
    await cluster.start("p", "sh", "-c", f"echo before; read x < {gate}; echo after")
    await cluster.runs("p")
    pieces: list[bytes] = []
    async for piece in cluster.client.logs("p", cluster.namespace, follow=True):
        pieces.append(piece)
        if b"".join(pieces) == b"before\n":
            await asyncio.to_thread(gate.write_text, "\n")
    assert b"".join(pieces) == b"before\nafter\n"


async def test_deleted_pod_gets_sigterm_and_may_say_goodbye(cluster: Live, tmp_path: Path) -> None:
    bye, never = tmp_path / "bye", tmp_path / "never"
    os.mkfifo(never)
    script = f"trap 'echo bye > {bye}; exit 0' TERM; echo ready; while :; do read x < {never}; done"
    await cluster.start("p", "sh", "-c", script, terminationGracePeriodSeconds=20)
    await cluster.logged("p", "ready")
    await cluster.delete("p")
    assert bye.read_text() == "bye\n"


async def test_pod_that_ignores_sigterm_is_killed_with_all_its_descendants(
    cluster: Live, tmp_path: Path
) -> None:
    """Descendants in sessions of their own, too."""
    pids = tmp_path / "pids"
    script = (
        "trap '' TERM; (setsid sleep 600 & echo $! >> PIDS; wait) & setsid sleep 600 & echo $! >> PIDS; "
        "echo $$$$ >> PIDS; while :; do sleep 600; done"
    ).replace("PIDS", str(pids))
    await cluster.start("p", "sh", "-c", script)
    await cluster.runs("p")
    await until(lambda: _lines(pids) == 3)
    found = [int(line) for line in pids.read_text().split()]
    await cluster.delete("p")
    assert [pid for pid in found if is_alive(pid)] == []
    await until(lambda: not list((cluster.cluster.state / "pods").iterdir()))


def _lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0


async def test_force_deleted_pod_is_killed(cluster: Live, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    await cluster.start("p", "sh", "-c", f"trap '' TERM; echo $$$$ > {pids}; sleep 600")
    await cluster.runs("p")
    await until(lambda: _lines(pids) == 1)
    await cluster.delete("p", grace=0)
    await until(lambda: not is_alive(int(pids.read_text())))


async def test_processes_die_with_a_cluster_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    sleep = f"setsid sleep 600 & echo $! $$$$ > {pids}.new; mv {pids}.new {pids}; sleep 600"
    pod = manifest("p", "sh", "-c", sleep)
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from elasticjob.kube.objects.views import POD\n"
        "from lab.waiting import until\nfrom tests.kit.devcluster.live import live\n"
        "async def main():\n"
        f"    async with live(Path({str(tmp_path / 'state')!r})) as cluster:\n"
        f"        await cluster.client.create(POD, {pod!r})\n"
        f"        await until(Path({str(pids)!r}).exists)\n"
        "        print('up', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    found = [int(pid) for pid in pids.read_text().split()]
    assert all(is_alive(pid) for pid in found)
    process.kill()
    await process.wait()
    await until(lambda: not any(is_alive(pid) for pid in found))


async def test_memory_limit_kills(cluster: Live) -> None:
    script = "import time\nheld = []\nwhile True:\n    held.append(bytearray(8 << 20)); time.sleep(0.01)"
    limit = {"resources": {"limits": {"memory": "100Mi"}}}
    await cluster.start("p", "python", "-c", script, container=limit)
    pod = await cluster.finished("p")
    end = end_of(pod)
    assert (pod.status.phase, end.exit_code, end.reason) == ("Failed", 137, "OOMKilled")


async def test_shared_pages_of_forked_processes_count_once(cluster: Live) -> None:
    """Five processes that share 60 MiB fit into 150 MiB."""
    script = (
        "import os, time\nheld = bytearray(os.urandom(60 << 20))\n"
        "for _ in range(4):\n    if os.fork() == 0: time.sleep(600)\n"
        "time.sleep(1.2)\nprint('done')"
    )
    await cluster.start("p", "python", "-c", script, container={"resources": {"limits": {"memory": "150Mi"}}})
    assert (await cluster.finished("p")).status.phase == "Succeeded"


async def test_resized_limit_takes_effect(cluster: Live, gate: Path) -> None:
    script = f"open({str(gate)!r}).read()\nheld = bytearray(200 << 20)\nimport time; time.sleep(1.2)"
    small, large = ({of: {"memory": size} for of in ("limits", "requests")} for size in ("100Mi", "400Mi"))
    await cluster.start("p", "python", "-c", script, container={"resources": small})
    await cluster.runs("p")
    patch = {"spec": {"containers": [{"name": "main", "resources": large}]}}
    await cluster.client.merge_patch(POD, "p", patch, cluster.namespace, subresource="resize", strategic=True)
    resized = await cluster.pod_where(
        "p", lambda pod: pod.status.container_statuses[0].allocated_resources.get("memory") == "400Mi"
    )
    assert restarts(resized) == 0
    await asyncio.to_thread(gate.write_text, "go")
    assert (await cluster.finished("p")).status.phase == "Succeeded"


async def test_missing_secret_is_waited_for(cluster: Live) -> None:
    key = {"name": "secret", "key": "word"}
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": key}}]
    await cluster.start("p", "sh", "-c", "echo $WORD", container={"env": env})
    pod = await cluster.pod_where("p", lambda pod: waiting(pod) == "CreateContainerConfigError")
    state = pod.status.container_statuses[0].state.waiting
    assert state is not None
    assert state.message == 'secret "secret" not found'
    secret = {"metadata": {"name": "secret"}, "stringData": {"word": "hush"}}
    await cluster.client.create(SECRET, secret, cluster.namespace)
    await cluster.finished("p")
    assert await cluster.logs("p") == "hush\n"


async def test_program_that_does_not_exist(cluster: Live) -> None:
    await cluster.start("p", "no-such-program")
    pod = await cluster.finished("p")
    end = end_of(pod)
    assert (pod.status.phase, end.exit_code, end.reason) == ("Failed", 128, "StartError")
    assert "no-such-program" in end.message


async def test_crash_loop_restarts_and_keeps_the_previous_log(cluster: Live, tmp_path: Path) -> None:
    """It is restarted often: a kubelet that is held up may find a short back-off over, and tell of none."""
    runs = tmp_path / "runs"
    script = f"echo run >> {runs}; n=$(wc -l < {runs}); echo $n; [ $n -lt 5 ] || exec sleep 600; exit 1"
    await cluster.start("p", "sh", "-c", script, restartPolicy="Always")
    await cluster.pod_where("p", lambda pod: restarts(pod) == 4 and pod.status.phase == "Running")
    await cluster.logged("p", "5\n")
    assert await cluster.logs("p", previous=True) == "4\n"
    await cluster.until(lambda: "BackOff" in cluster.reasons("p"))


async def test_last_words(cluster: Live) -> None:
    await cluster.start("p", "sh", "-c", "echo '{\"verdict\": 1}' > /dev/termination-log; exit 1")
    assert json.loads(end_of(await cluster.finished("p")).message) == {"verdict": 1}
    fall_back = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await cluster.start("q", "sh", "-c", "echo what went wrong; exit 1", container=fall_back)
    assert end_of(await cluster.finished("q")).message == "what went wrong\n"


async def test_environment_and_volumes(cluster: Live) -> None:
    settings = {"metadata": {"name": "settings"}, "data": {"color": "blue"}}
    await cluster.client.create(CONFIG_MAP, settings, cluster.namespace)
    await cluster.client.create(PERSISTENT_VOLUME_CLAIM, CLAIM, cluster.namespace)
    container = {
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "GREETING", "value": "I am $(NAME)"},
            {"name": "FILE", "value": "/settings/color"},
        ],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "volumeMounts": [
            {"name": "settings", "mountPath": "/settings"},
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "claim", "mountPath": "/claim"},
        ],
    }
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    script = (
        "echo $GREETING $color; cat $FILE; echo; echo x > /scratch/x; cat /scratch/x; "
        "echo kept > /claim/word; echo $IP"
    )
    await cluster.start("p", "sh", "-c", script, container=container, volumes=volumes)
    pod = await cluster.finished("p")
    assert await cluster.logs("p") == f"I am p blue\nblue\nx\n{pod.status.pod_ip}\n"
    assert (cluster.cluster.state / f"claims/{cluster.namespace}/c/word").read_text() == "kept\n"
    claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIM, "c", cluster.namespace)
    assert claim.status["phase"] == "Bound"


async def test_pod_talks_to_the_api_server_as_its_service_account(cluster: Live) -> None:
    await cluster.start("p", "sh", "-c", "stat -c %a $KUBECONFIG; kubectl get pod p -o name")
    await cluster.finished("p")
    assert await cluster.logs("p") == "600\npod/p\n"


async def test_init_containers_come_first_and_share_volumes(cluster: Live) -> None:
    init = {"name": "init", "image": "busybox", "command": ["sh", "-c", "echo made > /v/file"], **MOUNT}
    await cluster.start("p", "cat", "/v/file", container=MOUNT, initContainers=[init], volumes=[EMPTY])
    assert (await cluster.finished("p")).status.phase == "Succeeded"
    assert await cluster.logs("p") == "made\n"


async def test_readiness_and_hooks(cluster: Live, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["test", "-e", "/v/ready"]}, "periodSeconds": 1}
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo > /v/ready"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo stopping > {tmp_path}/hook"]}},
    }
    container = {"readinessProbe": probe, "lifecycle": hooks, **MOUNT}
    pod: dict[str, Any] = {"volumes": [EMPTY], "terminationGracePeriodSeconds": 10}
    await cluster.start("p", "sleep", "600", container=container, **pod)
    await cluster.pod_where("p", is_ready)
    await cluster.delete("p")
    assert (tmp_path / "hook").read_text() == "stopping\n"


async def test_same_name_again_is_another_pod(cluster: Live) -> None:
    await cluster.start("p", "echo", "first")
    first = await cluster.finished("p")
    await cluster.delete("p")
    await cluster.start("p", "echo", "second")
    second = await cluster.finished("p")
    assert await cluster.logs("p") == "second\n"
    assert first.metadata.uid != second.metadata.uid


async def test_unschedulable_pod_says_why_and_starts_when_there_is_room(cluster: Live) -> None:
    two = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    await cluster.start("p", "sleep", "600", container=two)
    await cluster.runs("p")
    await cluster.start("q", "true", container=two)
    blocked = await cluster.pod_where("q", lambda pod: pod.status.conditions)
    condition = next(c for c in blocked.status.conditions if c.type == "PodScheduled")
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert condition.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    await cluster.client.delete(POD, "p", cluster.namespace)
    assert (await cluster.finished("q")).status.phase == "Succeeded"


async def test_scheduling_gates_hold_a_pod_back(cluster: Live) -> None:
    await cluster.start("p", "true", schedulingGates=[{"name": "wait"}])
    pod = await cluster.pod_where("p", lambda pod: pod.status.conditions)
    assert pod.status.conditions[0].reason == "SchedulingGated"
    await cluster.client.json_patch(
        POD, "p", [{"op": "remove", "path": "/spec/schedulingGates"}], cluster.namespace
    )
    assert (await cluster.finished("p")).status.phase == "Succeeded"


async def test_many_pods_have_addresses_of_their_own(cluster: Live) -> None:
    names = [f"p{number}" for number in range(12)]
    for name in names:
        await cluster.start(name, "sleep", "600")
    pods = [await cluster.runs(name) for name in names]
    assert len({pod.status.pod_ip for pod in pods}) == len(names)


async def test_sigterm_reaches_only_the_first_process(cluster: Live, tmp_path: Path) -> None:
    """As in a container: the first process decides about its children."""
    out = tmp_path / "out"
    note = f"open({str(out)!r}, 'a').write"
    child = f"import signal; signal.signal(signal.SIGTERM, lambda *_: {note}('child ')); signal.pause()"
    script = (
        "import signal, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"def end(*_):\n    time.sleep(0.3); {note}('parent'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\nsignal.pause()"
    )
    await cluster.start("p", "python", "-c", script, terminationGracePeriodSeconds=10)
    await cluster.logged("p", "ready")
    await cluster.delete("p")
    assert out.read_text() == "parent"


async def test_pending_pod_can_be_deleted(cluster: Live) -> None:
    await cluster.start("p", "true", container={"resources": {"limits": {"nvidia.com/gpu": "9"}}})
    await cluster.pod_where("p", lambda pod: pod.status.conditions)
    await cluster.delete("p")


async def test_a_pod_of_an_unknown_image_waits_has_no_log_and_can_be_deleted(cluster: Live) -> None:
    await cluster.start("p", "true", container={"image": "nowhere.example/none:1"})
    pod = await cluster.pod_where("p", lambda pod: waiting(pod) in ("ErrImagePull", "ImagePullBackOff"))
    assert pod.status.phase == "Pending"
    with pytest.raises(ApiError, match='container "main" in pod "p" is waiting to start: ErrImagePull'):
        await cluster.logs("p")
    await cluster.delete("p")


async def test_failed_post_start_hook_ends_the_container(cluster: Live) -> None:
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}}
    await cluster.start("p", "sleep", "600", container=hook)
    assert end_of(await cluster.finished("p")).exit_code == 137
    await cluster.until(lambda: "FailedPostStartHook" in cluster.reasons("p"))


async def test_claims_are_found_again_by_the_next_cluster(tmp_path: Path) -> None:
    async with live(tmp_path / "state") as cluster:
        await cluster.client.create(PERSISTENT_VOLUME_CLAIM, CLAIM, "default")
        await cluster.start("p", "sh", "-c", "echo kept > /v/file", container=MOUNT, volumes=CLAIMED)
        await cluster.finished("p")
    async with live(tmp_path / "state") as cluster:
        await cluster.client.create(PERSISTENT_VOLUME_CLAIM, CLAIM, "default")
        await cluster.start("q", "cat", "/v/file", container=MOUNT, volumes=CLAIMED)
        await cluster.finished("q")
        assert await cluster.logs("q") == "kept\n"


async def test_a_pod_waits_for_its_claim_whose_files_go_with_it(cluster: Live) -> None:
    await cluster.start("p", "sh", "-c", "echo x > /v/file", container=MOUNT, volumes=CLAIMED)
    waiting = await cluster.pod_where("p", lambda pod: pod.status.conditions)
    said = waiting.status.conditions[0]
    assert (said.reason, said.message) == ("Unschedulable", 'persistentvolumeclaim "c" not found')
    await cluster.client.create(PERSISTENT_VOLUME_CLAIM, CLAIM, cluster.namespace)
    await cluster.finished("p")
    file = cluster.cluster.state / f"claims/{cluster.namespace}/c/file"
    assert file.exists()
    await cluster.delete("p")
    await cluster.client.delete(PERSISTENT_VOLUME_CLAIM, "c", cluster.namespace)
    await until(lambda: not file.exists())


async def test_one_cluster_per_state_folder(cluster: Live) -> None:
    with pytest.raises(StateInUse, match="another dev cluster runs in"):
        async with DevCluster(cluster.cluster.state):
            pass


async def test_two_clusters_side_by_side(cluster: Live, tmp_path: Path) -> None:
    async with live(tmp_path / "other") as other:
        await cluster.start("p", "sleep", "600")
        await other.start("p", "sleep", "600")
        one = await cluster.runs("p")
        two = await other.runs("p")
    assert one.status.pod_ip != two.status.pod_ip
