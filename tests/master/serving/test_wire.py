"""What a master sends."""

from __future__ import annotations

import msgspec
import pytest

from elasticjob.api.rpc.message import JSON, MSGPACK
from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.master.handlers import dispatch
from elasticjob.master.serving.wire import FIRST, Encoder, media_type
from lab.virtual.master import join, played


def test_a_world_is_encoded_once_for_all_of_its_members() -> None:
    game, encoder = played("node-0", "node-1"), Encoder()
    first, second = (encoder.encode(game.world(name), JSON) for name in ("node-0", "node-1"))
    assert first is second
    assert msgspec.json.decode(first, type=World) == game.job.world
    assert msgspec.msgpack.decode(encoder.encode(game.job.world, MSGPACK), type=World) == game.job.world


@pytest.mark.parametrize("many", [FIRST - 1, FIRST, FIRST + 1, 50])
def test_of_a_large_world_each_member_gets_what_it_needs(many: int) -> None:
    names, encoder = [f"node-{index}" for index in range(many)], Encoder()
    members = tuple(
        Member(node=name, incarnation="x", slots=1 + index % 3, address="a", port=index, since=1)
        for index, name in enumerate(names)
    )
    world = World(round=7, members=members, batch_slots=200)
    assert msgspec.json.decode(encoder.encode(world, JSON), type=World) == world
    for rank, name in enumerate(names):
        part = msgspec.json.decode(encoder.encode(world, JSON, name), type=World)
        assert (part.round, part.size, part.count, part.batch_slots) == (7, world.size, many, 200)
        assert (part.node_rank(name), part.first_rank(name)) == (rank, world.first_rank(name))
        assert part.members[:FIRST] == members[:FIRST]
        assert len(part.members) <= FIRST + 1
        with pytest.raises(LookupError, match=r"nobody is not in the world of round 7"):
            part.node_rank("nobody")


def test_the_next_world_is_another() -> None:
    game, encoder = played("node-0", "node-1"), Encoder()
    encoder.encode(game.job.world, JSON)
    game.ask(join("node-0", after=1), join("node-1", after=1))
    assert msgspec.json.decode(encoder.encode(game.job.world, JSON), type=World).round == 2


@pytest.mark.parametrize(
    ("header", "mime"),
    [
        ("application/msgpack", MSGPACK),
        ("Application/MsgPack; q=1", MSGPACK),
        ("application/json", JSON),
        ("text/plain", JSON),
        ("", JSON),
    ],
)
def test_headers_name_a_media_type_in_letters_of_any_case(header: str, mime: str) -> None:
    assert media_type(header) == mime


def test_a_request_has_a_path_of_its_own_and_a_long_poll_an_answer_at_its_end() -> None:
    assert [*dispatch.VERBS.values()] == [*dispatch.HANDLERS]
    assert dispatch.LATER.keys() == dispatch.EXPIRED.keys() <= dispatch.HANDLERS.keys()
