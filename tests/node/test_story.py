"""The demo's story on a real node: real containers, the operator in the cluster, restricted pods, kubectl.

An act ends when what it expects is seen. What cannot be seen from outside of a process is asserted at the
end, from the record of steps: that none is missing, that the loss fell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Final

import pytest

from elasticjob import __version__
from elasticjob.cli.demo.run import last_words
from elasticjob.cli.story.acts import STORY, Act, Mark
from elasticjob.cli.story.example import load
from elasticjob.cli.story.runner import ActResult, Story, play
from elasticjob.cli.story.seen import Seen, trains
from elasticjob.cli.story.steps import Step, gaps, standstills
from elasticjob.cli.story.timeline import tell
from elasticjob.kube.client.client import Client
from lab.clusters.installed import timeline
from lab.clusters.installed.asking import Asked, asking
from lab.clusters.installed.helm import CHART, helm, program
from lab.clusters.installed.installation import OPERATOR, READY, SYSTEM, Installation
from lab.clusters.installed.stage import OnNode, followed, in_namespace
from lab.waiting import PATIENCE

pytestmark = [pytest.mark.node, pytest.mark.timeout(3600)]

LIMIT: Final = 4 * PATIENCE
"""Seconds that an act may take on a busy machine; the first one reads torch from a cold disk."""
MINUTE: Final = 60.0
OURS: Final = (
    "elasticjobs,jobresources,scaleplans,pods,services,secrets,serviceaccounts,roles,rolebindings,"
    "networkpolicies,configmaps"
)


async def test_a_job_lives_through_everything_and_leaves_nothing(
    node: Installation, admin: Client, home: str, volume: Path
) -> None:
    example = in_namespace(load(), home).training(1)
    before = await node.kubectl.names(OURS, home)
    async with followed(node, admin, example, volume, "story") as found:
        stage, watched, plot = found.stage, found.watched, Plot(node, found.stage)
        story = Story(plot.acts())
        try:
            await play(story, stage, watched, time.time)
            accuracy = (await last_words(admin, watched.seen, home)).progress.metrics.get("accuracy")
        finally:
            node.rows += timeline.rows(
                story.played, tell(story.played, watched.steps, watched.messages, None)
            )

    assert gaps(watched.steps) == ()
    assert mean_loss(watched.steps[-50:]) < mean_loss(watched.steps[:50]) / 3
    assert accuracy is not None
    assert accuracy > 0.9
    for title, asked in plot.asked.items():
        played = next(one for one in story.played if one.act.title == title)
        training_did_not_notice(played)
        steps = [step for step in watched.steps if played.began <= step.at <= played.ended]
        assert standstills(steps) == ()
        usual, longest = pauses(steps)
        at = max(pairwise(steps), key=lambda pair: pair[1].at - pair[0].at)[0].at
        print(f"{title}: the longest pause began {at - played.began:.1f} s after the command, at {at:.3f}")
        print(f"{title}: {len(steps)} steps, {usual:.3f} s apart, {longest:.3f} s at most; {asked}")
        earlier = [step for step in watched.steps if played.began - MINUTE <= step.at < played.began]
        print(f"{title}: in the minute before, {{:.3f}} s apart, {{:.3f}} s at most".format(*pauses(earlier)))
        assert asked.refusals == []
        assert asked.times > 0

    await node.kubectl("-n", home, "delete", f"elasticjob/{example.key.name}")
    await until_only(node, home, before | {"configmap/digits-code"})


UPGRADE: Final = "upgrade the operator"
ROLL_BACK: Final = "roll the operator back"
NEXT: Final = f"{__version__}-next"
DEPLOYED: Final = ("--wait", f"--timeout={2 * PATIENCE:.0f}s", "--namespace", SYSTEM)


@dataclass
class Plot:
    """The demo's acts on this stage, and two that need a real cluster: the operator is upgraded, and back."""

    node: Installation
    stage: OnNode
    asked: dict[str, Asked] = field(default_factory=dict)

    def acts(self) -> tuple[Act, ...]:
        """Return them in order: upgrade and rollback come while one worker trains."""
        acts = {act.title: replace(act, within=LIMIT) for act in STORY}
        goes_on = (trains(1, again=False), "1 worker trains", LIMIT)
        rolled = (
            Act(UPGRADE, Mark.LIFE, lambda _: self.upgrade(), *goes_on),
            Act(ROLL_BACK, Mark.LIFE, lambda _: self.roll_back(), *goes_on),
        )
        titles = [*acts]
        at = titles.index("suspend")
        return (*(acts[title] for title in titles[:at]), *rolled, *(acts[title] for title in titles[at:]))

    async def upgrade(self) -> str:
        """Roll the operator out with another image."""
        self.node.load("operator", NEXT)
        values = ("--reset-then-reuse-values", "--set", f"image.tag={NEXT}")
        return await self.rolled_out(
            UPGRADE,
            ("upgrade", "elasticjob", str(CHART), *values, *DEPLOYED),
            ("set", "image", OPERATOR, f"operator=elasticjob/operator:{NEXT}"),
        )

    async def roll_back(self) -> str:
        """Have the former image again."""
        return await self.rolled_out(
            ROLL_BACK, ("rollback", "elasticjob", *DEPLOYED), ("rollout", "undo", OPERATOR)
        )

    async def rolled_out(self, title: str, by_helm: Sequence[str], by_kubectl: Sequence[str]) -> str:
        """Wait until no pod of before is left, while somebody goes on creating jobs."""
        kubectl = self.node.kubectl
        old = await kubectl.names("pods", SYSTEM)
        async with asking(self.node.machine.config(), self.stage.example) as self.asked[title]:
            if program():
                await asyncio.to_thread(helm, *by_helm, kubeconfig=kubectl.kubeconfig)
            else:
                await kubectl("-n", SYSTEM, *by_kubectl)
            await kubectl("-n", SYSTEM, "rollout", "status", OPERATOR, READY)
            await kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *old)
        return " ".join(("helm", *by_helm[:2]) if program() else ("kubectl", *by_kubectl))


def mean_loss(steps: Sequence[Step]) -> float:
    """Return the mean loss of steps."""
    return mean(step.loss for step in steps if step.loss is not None)


def training_did_not_notice(upgrade: ActResult) -> None:
    """The same pods made steps of the same round before and after."""
    before, after = upgrade.before, upgrade.after
    assert at_work(after) == at_work(before)
    assert after.round == before.round
    assert after.step > before.step


def pauses(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the usual time between two steps, and the longest."""
    between = [after.at - before.at for before, after in pairwise(steps)]
    return median(between), max(between)


def at_work(seen: Seen) -> set[str]:
    """Return the uids of the pods that are there to stay: master and workers."""
    return {pod.uid for pod in seen.pods if pod.alive and not pod.leaving}


async def until_only(node: Installation, namespace: str, kept: set[str]) -> None:
    """Wait until nothing but `kept` is left: the garbage collector follows the owners."""
    while left := await node.kubectl.names(OURS, namespace) - kept:
        await node.kubectl("-n", namespace, "wait", "--for=delete", READY, *left)
    assert await node.kubectl.names(OURS, namespace) == kept
