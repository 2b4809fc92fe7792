"""One loopback address per pod, of 127.64.0.0/11; 127.96.0.0/11 belongs to services."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from random import Random

PODS = IPv4Network("127.64.0.0/11")


class Addresses:
    """Hands out addresses, the least recently used ones last.

    Clusters on one machine share the range, so each begins at a random place in it.
    """

    def __init__(self, random: Random) -> None:
        self._next = random.randrange(PODS.num_addresses)
        self._taken: set[str] = set()

    def take(self) -> str:
        """An address that no pod of this cluster has. Raises RuntimeError when all are taken."""
        for _ in range(PODS.num_addresses):
            address = PODS[self._next]
            self._next = (self._next + 1) % PODS.num_addresses
            if is_free(address) and str(address) not in self._taken:
                self._taken.add(str(address))
                return str(address)
        raise RuntimeError(f"every address of {PODS} is taken: delete pods")

    def give_back(self, address: str) -> None:
        self._taken.discard(address)


def is_free(address: IPv4Address) -> bool:
    """May a pod have it? Not the first and last of a block of 256."""
    return address.packed[3] not in (0, 255)
