"""Invariants of a master's state; tests check them after every turn."""

from __future__ import annotations

from elasticjob.master.state.job import Job


def invariants(job: Job) -> list[str]:
    """Return the violated invariants of `job`. Checked after every turn in tests."""
    return [sentence for check in INVARIANTS if (sentence := check(job))]


def _world_fits_the_batch(job: Job) -> str:
    """Bounds are checked when a world is formed, not here: they may have changed since."""
    if not job.world:
        return ""
    names = [member.node for member in job.world.members]
    if not names or len(set(names)) != len(names):
        return f"world {job.world.round} names its members {names}"
    if job.world.size > job.world.batch_slots:
        return f"world {job.world.round} has {job.world.size} workers, batch_slots {job.world.batch_slots}"
    return ""


def _rounds_rise(job: Job) -> str:
    world = job.world.round if job.world else 0
    ahead = [node.name for node in job.nodes.values() if node.round > job.round]
    return (
        f"world {world} and nodes {ahead} are ahead of round {job.round}"
        if world > job.round or ahead
        else ""
    )


def _members_are_what_the_world_says(job: Job) -> str:
    lives = {member.node: member.incarnation for member in job.world.members} if job.world else {}
    wrong = [n.name for n in job.nodes.values() if job.member(n.name) and lives.get(n.name) != n.incarnation]
    return f"{wrong} are not members of the world they claim" if wrong else ""


def _running_world_is_whole(job: Job) -> str:
    if not job.running:
        return ""
    names = [member.node for member in job.running.members if not _has_left(job, member.node)]
    gone = [name for name in names if not job.member(name)]
    return f"world {job.running.round} runs without its members {gone}" if gone else ""


def _only_members_of_a_running_world_leave_it(job: Job) -> str:
    inside = {member.node for member in job.world.members} if job.world else set()
    wrong = [
        name
        for name in job.leaving
        if job.ending
        or name not in inside
        or not (_has_left(job, name) or (job.member(name) and job.nodes[name].leaving))
    ]
    return f"{wrong} leave a world that they are not in" if wrong else ""


def _has_left(job: Job, name: str) -> bool:
    """Whether a member is gone, and its world waits for others that leave; its next life may be there."""
    return name in job.leaving and job.leaving[name].gone


def _rank_zero_is_the_oldest(job: Job) -> str:
    ages = [member.since for member in job.world.members] if job.world else []
    sound = ages[:1] == [min(ages, default=0)] if job.topology else ages == sorted(ages)
    return "" if sound or not ages else f"ranks are not in the order of age: {ages}"


def _only_the_living_wait(job: Job) -> str:
    wrong = [n.name for n in job.nodes.values() if n.joined and (not n.incarnation or n.leaving or n.ended)]
    return f"{wrong} wait for a world, but have no life that could enter it" if wrong else ""


def _gathering_is_the_opposite_of_training(job: Job) -> str:
    if job.verdict or (job.gathering is None) == (job.running is not None):
        return ""
    return f"gathering since {job.gathering} while world {job.running} runs"


def _histories_are_bounded(job: Job) -> str:
    return "too many changes kept" if len(job.training.changes) > job.spec.limits.history else ""


def _counts_are_right(job: Job) -> str:
    nodes, exact = job.nodes, job.nodes.exact()
    bounds = (
        (nodes.heard, exact.heard, "heard"),
        (nodes.expires, exact.expires, "expires"),
        (nodes.first, exact.first, "first"),
        (exact.last, nodes.last, "last"),
    )
    wrong = [name for lo, hi, name in bounds if hi is not None and (lo is None or lo > hi)]
    wrong += [role for role, index in exact.highest.items() if index > nodes.highest[role]]
    wrong += ["kinds"] if nodes.kinds != exact.kinds else []
    return f"the roster's {wrong} are not those of its nodes" if wrong else ""


INVARIANTS = (
    _counts_are_right,
    _world_fits_the_batch,
    _rounds_rise,
    _members_are_what_the_world_says,
    _running_world_is_whole,
    _only_members_of_a_running_world_leave_it,
    _rank_zero_is_the_oldest,
    _only_the_living_wait,
    _gathering_is_the_opposite_of_training,
    _histories_are_bounded,
)
