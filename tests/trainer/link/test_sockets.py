"""Where a node listens for the others, whatever its address is to them."""

from __future__ import annotations

import socket

import pytest

from elasticjob.trainer.link.sockets import ANYWHERE, bound, place_of

HERE = socket.gethostname()
BEHIND_NAT = "192.0.2.1"


@pytest.mark.parametrize(
    ("address", "place"),
    [("127.0.0.1", "127.0.0.1"), (HERE, ANYWHERE), (BEHIND_NAT, ANYWHERE), ("absent.invalid", ANYWHERE)],
)
def test_node_listens_at_its_own_address_and_everywhere_for_one_that_it_does_not_have(
    address: str, place: str
) -> None:
    assert place_of(address) == place


def test_node_with_a_name_is_reached_at_each_of_its_addresses() -> None:
    with bound(HERE) as listener:
        listener.listen()
        for address in ("127.0.0.1", "127.0.1.1", HERE):  # the second is Debian's for the name
            socket.create_connection((address, listener.getsockname()[1])).close()
