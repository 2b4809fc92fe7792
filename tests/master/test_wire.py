"""What a master sends."""

from __future__ import annotations

import msgspec

from elasticjob.api.rpc.message import JSON, MSGPACK
from elasticjob.api.rpc.rendezvous import World
from elasticjob.master.wire import Encoder
from tests.kit.master import join, played


def test_a_world_is_encoded_once_for_all_of_its_members() -> None:
    game, encoder = played("node-0", "node-1"), Encoder()
    first, second = (encoder.encode(game.world(name), JSON) for name in ("node-0", "node-1"))
    assert first is second
    assert msgspec.json.decode(first, type=World) == game.job.world
    assert msgspec.msgpack.decode(encoder.encode(game.job.world, MSGPACK), type=World) == game.job.world


def test_the_next_world_is_another() -> None:
    game, encoder = played("node-0", "node-1"), Encoder()
    encoder.encode(game.job.world, JSON)
    game.ask(join("node-0", after=1), join("node-1", after=1))
    assert msgspec.json.decode(encoder.encode(game.job.world, JSON), type=World).round == 2
