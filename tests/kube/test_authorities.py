"""The authority's life: its rules, one by one. (test_authorities_machine.py: what replicas make of them.)"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from elasticjob.kube.authorities import (
    Authorities,
    Authority,
    Certificate,
    Kept,
    Leaf,
    Plan,
    Policy,
    Seen,
    decide,
    reason_to_sign,
    settled,
    sighted,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = Policy()
NOTHING = frozenset[Certificate]()
YOUNG = NOW + POLICY.retention


def ca(name: str, begins: datetime = NOW) -> Authority:
    return Authority(name.encode(), b"key of " + name.encode(), begins, begins + POLICY.authority_lifetime)


def certificates(*names: str) -> frozenset[Certificate]:
    return frozenset(name.encode() for name in names)


def decided(seen: Seen, now: datetime = NOW) -> Plan:
    return decide(seen, now, lambda: ca("new", now), POLICY)


def seen(
    held: Authorities | None = None,
    remembered: Authorities | None = None,
    published: frozenset[Certificate] = NOTHING,
    settled: frozenset[Certificate] = NOTHING,
    **kept: Any,
) -> Seen:
    return Seen(Kept(held, **kept), remembered, published, settled)


ONE = Authorities(ca("one"))
TURNING = Authorities(ca("one"), ca("two"))
TURNED = Authorities(ca("two"), previous=(b"one",), forget_after=NOW + POLICY.retention)


def test_where_there_is_none_one_is_made() -> None:
    plan = decided(seen())
    assert plan.authorities == Authorities(ca("new"), adopt_until=YOUNG)
    assert plan.why == "the webhooks' authority is made"


def test_what_bundles_hold_stays_trusted_when_the_secret_is_new() -> None:
    """Others may serve leaves of it."""
    plan = decided(seen(published=certificates("lost")))
    assert plan.authorities == Authorities(ca("new"), None, (b"lost",), YOUNG, YOUNG)


def test_what_comes_into_the_bundles_of_a_young_secret_is_trusted_too() -> None:
    """A replica may still have been about to publish what the Secret before said."""
    young = replace(ONE, adopt_until=YOUNG)
    plan = decided(seen(young, published=certificates("one", "lost")), NOW + DAY)
    assert plan.authorities == replace(young, previous=(b"lost",), forget_after=YOUNG + DAY)
    assert decided(seen(ONE, published=certificates("one", "lost")), NOW + DAY) == Plan(ONE)
    assert decided(seen(young, published=certificates("one", "lost")), YOUNG) == Plan(young)


def test_what_bundles_hold_of_a_process_that_shares_nothing_is_of_one_that_has_gone() -> None:
    assert decided(seen(published=certificates("lost"), shared=False)).authorities == Authorities(ca("new"))


def test_nothing_changes_for_long() -> None:
    assert decided(seen(ONE), NOW + 6 * 365 * DAY) == Plan(ONE)
    assert decided(seen(TURNING, settled=certificates("one"))) == Plan(TURNING)
    assert decided(seen(TURNED), NOW + POLICY.retention - DAY) == Plan(TURNED)


def test_two_thirds_of_a_life_begin_a_rotation() -> None:
    plan = decided(seen(ONE), NOW + 7 * 365 * DAY)
    assert plan.authorities == replace(ONE, next=ca("new", NOW + 7 * 365 * DAY))


def test_a_rotation_that_is_asked_for_begins_once() -> None:
    plan = decided(seen(ONE, rotate=True))
    assert (plan.authorities, plan.rotate) == (replace(ONE, next=ca("new")), False)
    waiting = decided(seen(TURNING, rotate=True))
    assert (waiting.authorities, waiting.why, waiting.rotate) == (TURNING, "", True)
    promoted = decided(seen(TURNING, rotate=True, settled=certificates("one", "two")))
    assert (promoted.authorities, promoted.rotate) == (TURNED, True)


def test_the_next_signs_once_it_has_been_seen_in_every_bundle_for_long_enough() -> None:
    assert decided(seen(TURNING, settled=certificates("one", "two"))).authorities == TURNED


def test_the_key_of_a_previous_authority_is_gone() -> None:
    assert b"key of one" not in repr(TURNED).encode()


def test_the_previous_is_forgotten_when_its_last_leaf_has_ended() -> None:
    plan = decided(seen(TURNED), NOW + POLICY.retention)
    assert plan.authorities == Authorities(ca("two"))


def test_a_date_that_was_lost_is_set_anew_and_nothing_forgotten() -> None:
    plan = decided(seen(replace(TURNED, forget_after=None)), NOW + DAY)
    assert plan.authorities == replace(TURNED, forget_after=NOW + DAY + POLICY.retention)


def test_a_deleted_secret_is_restored_and_a_rotation_begun() -> None:
    plan = decided(seen(remembered=ONE, published=certificates("one", "of another replica")))
    assert plan.authorities == Authorities(ca("one"), ca("new"), (b"of another replica",), YOUNG, YOUNG)


def test_a_deletion_in_mid_rotation_goes_on_with_it() -> None:
    assert decided(seen(remembered=TURNING, published=certificates("one", "two"))).authorities == replace(
        TURNING, adopt_until=YOUNG
    )


def test_a_lost_secret_trusts_all_that_it_trusted_for_as_long_as_if_that_had_signed_just_now() -> None:
    """The dates that are remembered may be old: meanwhile another may have made a previous one current."""
    plan = decided(seen(remembered=TURNED, spoiled="half a key"), YOUNG - DAY)
    assert plan.authorities.previous == (b"one",)
    assert plan.authorities.forget_after == YOUNG - DAY + POLICY.retention


def test_a_spoiled_secret_is_mended_from_memory() -> None:
    plan = decided(seen(remembered=ONE, spoiled="the key is not that of the certificate", version="4"))
    assert plan.authorities == replace(ONE, adopt_until=YOUNG)
    assert plan.why.endswith("was spoiled and is mended: the key is not that of the certificate")


def test_a_spoiled_secret_that_nobody_remembers_is_made_anew_trusting_what_can_be_read() -> None:
    plan = decided(seen(spoiled="half a key", readable=(b"one",), published=certificates("zero")))
    assert plan.authorities == Authorities(ca("new"), None, (b"one", b"zero"), YOUNG, YOUNG)


LEAF = Leaf(b"", b"", NOW, NOW + POLICY.leaf_lifetime, b"one")


@pytest.mark.parametrize(
    ("leaf", "held", "everywhere", "reliable", "at", "why"),
    [
        (None, ONE, "", "", NOW, "the first"),
        (LEAF, ONE, "one", "one", NOW, ""),
        (LEAF, ONE, "one", "one", NOW + 5 * DAY, "two thirds of the old one's life are over"),
        (LEAF, ONE, "", "", NOW + 5 * DAY, ""),
        (LEAF, TURNED, "one two", "", NOW, ""),
        (LEAF, TURNED, "one two", "", NOW + 5 * DAY, "two thirds of the old one's life are over"),
        (LEAF, TURNED, "one two", "two", NOW, "the authority has changed"),
        (LEAF, TURNED, "two", "", NOW, "the old one's authority is not trusted"),
        (LEAF, TURNED, "one", "", NOW, ""),
    ],
)
def test_a_leaf_is_replaced_by_one_that_is_trusted(
    leaf: Leaf | None, held: Authorities, everywhere: str, reliable: str, at: datetime, why: str
) -> None:
    found = reason_to_sign(leaf, held, certificates(*everywhere.split()), certificates(*reliable.split()), at)
    assert found == why


def test_what_disappears_from_a_bundle_has_to_settle_again() -> None:
    first = sighted({}, [b"one"], 10.0)
    both = sighted(first, [b"one", b"two"], 100.0)
    assert settled(both, 130.0, POLICY) == certificates("one")
    assert settled(sighted(sighted(both, [b"one"], 131.0), [b"one", b"two"], 132.0), 230.0, POLICY) == {
        b"one"
    }


def test_an_authority_has_to_outlive_its_leaves() -> None:
    with pytest.raises(ValueError, match="authority_lifetime 10 days, 0:00:00 is too short"):
        Policy(authority_lifetime=10 * DAY)
