"""Addresses and links, as expressions read them: IP addresses, blocks of them, URLs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import quote, unquote_plus

Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Block:
    """The addresses that begin with the first bits of one."""

    address: Address
    bits: int

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def masked(self) -> Block:
        return Block(ip_network((self.address, self.bits), strict=False).network_address, self.bits)

    def has(self, address: Address) -> bool:
        return address.version == self.address.version and Block(address, self.bits).masked() == self.masked()

    def covers(self, other: Block) -> bool:
        return other.bits >= self.bits and self.has(other.address)


def address(text: str) -> Address:
    """Read an IP address: none with a zone, none of IPv4 in the form of IPv6. Raises ValueError."""
    try:
        found = ip_address(text)
    except ValueError:
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {why}') from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return found


def block(text: str) -> Block:
    """Read a block of addresses, `10.0.0.0/8`. Raises ValueError."""
    start, slash, bits = text.rpartition("/")
    if not slash or not re.fullmatch(r"0|[1-9][0-9]{0,2}", bits):
        raise ValueError(_no_block(text, "no '/'" if not slash else f'bad bits after slash: "{bits}"'))
    first = address(start)
    if int(bits) > first.max_prefixlen:
        raise ValueError(_no_block(text, "prefix length out of range"))
    return Block(first, int(bits))


def _no_block(text: str, why: str) -> str:
    told = "network address parse error during conversion from string: "
    return f'{told}{told}netip.ParsePrefix("{text}"): {why}'


def is_link_local_multicast(found: Address) -> bool:
    if isinstance(found, IPv4Address):
        return found.packed[:3] == bytes((224, 0, 0))
    return found.packed[0] == 0xFF and found.packed[1] & 0x0F == 2


def is_global_unicast(found: Address) -> bool:
    is_broadcast = found == IPv4Address("255.255.255.255")
    other = (found.is_unspecified, found.is_loopback, found.is_multicast, found.is_link_local, is_broadcast)
    return not any(other)


@dataclass(frozen=True)
class Link:
    """The parts of a URL."""

    scheme: str
    host: str
    path: str
    query: str

    @property
    def hostname(self) -> str:
        name = self.host.removesuffix(f":{self.port}") if self.port else self.host.removesuffix(":")
        return name[1:-1] if name.startswith("[") else name

    @property
    def port(self) -> str:
        found = re.search(r":(\d+)$", self.host)
        return found[1] if found else ""

    def values(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for part in filter(None, self.query.split("&")):
            name, _, value = part.partition("=")
            if ";" not in part:
                found.setdefault(unquote_plus(name), []).append(unquote_plus(value))
        return found


_LINK: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>[^?#]*)(?:\?(?P<query>[^#]*))?(?:\#.*)?", re.DOTALL
)
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s\[\]<>\"`{}|\\^:/?#@]*)(?::\d*)?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def link(text: str) -> Link:
    """Read a URL that is absolute, or a path that is. Raises ValueError."""
    match = _LINK.fullmatch(text)
    if not text or match is None or _UNPRINTABLE.search(text) or text.startswith(":"):
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": it is no URL')
    rest, scheme = match["rest"], match["scheme"]
    if not rest.startswith("/"):
        if scheme is None:
            why = f'parse "{text}": invalid URI for request'
            raise ValueError(f"URL parse error during conversion from string: {why}")
        return Link(scheme.lower(), "", "", match["query"] or "")
    host, path = _split(rest, has_scheme=scheme is not None)
    if not _HOST.fullmatch(host.rpartition("@")[2]) or _BROKEN_ESCAPE.search(path):
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": no right host')
    return Link((scheme or "").lower(), host.rpartition("@")[2], quote(path, _KEPT), match["query"] or "")


_KEPT: Final = "/%:@!$&'()*+,;=-._~[]"


def _split(rest: str, *, has_scheme: bool) -> tuple[str, str]:
    """Host and path; without a scheme, all is path."""
    if not rest.startswith("//") or not has_scheme:
        return "", rest
    host, slash, path = rest[2:].partition("/")
    return host, slash + path
