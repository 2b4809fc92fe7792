"""Random requests: good ones, damaged at every level from JSON values to single bytes. Each has a number."""

from __future__ import annotations

import copy
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

Body = Mapping[str, Any]

JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, 2**53, 2**64, -(2**63), 10**30),
    *("", "x", "a/b", "..", "\0", "é", "\ud800", "\u202e", "n" * 300, "9" * 5000, "2026-01-01T00:00:00Z"),
    *([], {}, [None], [{}], {"a": None}, [[]], {"": ""}),
)
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
    *("OPTIONS", "CONNECT", "TRACE", "PRI", "post", "x" * 99),
)
HEADERS: tuple[bytes, ...] = (
    b"Accept: application/msgpack",
    b"Accept: text/html;q=x,*/*",
    b"Accept-Encoding: gzip, br",
    b"Authorization: Basic eDp5",
    b"Authorization: Bearer \xff\xfe",
    b"Connection: close",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AA==",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Content-Encoding: gzip",
    b"Content-Encoding: deflate",
    b"Content-Encoding: br",
    b"Content-Encoding: zstd",
    b"Content-Length: -1",
    b"Content-Length: 5",
    b"Content-Length: 99999999999999999999",
    b"Content-Type: application/msgpack",
    b"Content-Type: multipart/form-data; boundary=x",
    b"Content-Type: text/plain; charset=utf-7",
    b'Content-Type: ;;;="',
    b"Cookie: a=b; \x80=\x01; c",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Forwarded: for=_x;;host=",
    b"Host: a b",
    b"If-Modified-Since: Thu, 99 Foo 9999 99:99:99 GMT",
    b"Range: bytes=9-1,-",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"X-Empty:",
    b"X-Folded: a\r\n b",
    b"X-Long: " + b"y" * 9000,
    b"X-Nul: \0",
    b": no name",
    b"no colon",
)
LONG_TIME = "?timeout=" + "9" * 400 + "s"
QUERIES = ("", "?", "?timeout=10s", "?timeout=x&timeout=", "?%ff=%", "?a=" + "b" * 3000, "#x", LONG_TIME)
PLACES = ("//x/../..", "/%2e%2e/%00", "*", "http://[::1/", "http://other:99999/", "/\xe9", "/" + "p/" * 3000)


@dataclass(frozen=True)
class Calls:
    """What a listener answers: good bodies by path, paths without a body, and the header that lets one in."""

    bodies: Sequence[tuple[str, Body]]
    pages: Sequence[str] = ()
    credentials: bytes = b""


def request(calls: Calls, chance: random.Random) -> bytes:
    """Return the bytes of one to three requests, whole or not; two of three are good HTTP with odd bodies."""
    many = chance.choice((1, 1, 1, 1, 2, 3))
    if chance.random() < 0.67:
        return b"".join(_one(calls, chance, odd=0.0) for _ in range(many))
    sent = b"".join(_one(calls, chance, odd=0.2) for _ in range(many))
    if chance.random() < 0.2:
        sent = damaged(sent, chance)
    return sent[: chance.randrange(len(sent) + 1)] if chance.random() < 0.2 else sent


def _one(calls: Calls, chance: random.Random, odd: float) -> bytes:
    """Return one request; `odd` is how probable each oddity outside of its body is."""
    method, path, data, headers = _asked(calls, chance)
    if chance.random() < odd:
        method = chance.choice(METHODS)
    if chance.random() < odd:
        path = chance.choice(PLACES)
    if chance.random() < odd:
        path += chance.choice(QUERIES)
    headers = [*([b"Host: x"] if chance.random() >= odd else []), *headers]
    if calls.credentials and chance.random() >= odd:
        headers.append(calls.credentials)
    while chance.random() < odd:
        headers.insert(chance.randrange(len(headers) + 1), chance.choice(HEADERS))
    if chance.random() < odd / 10:
        headers += [b"X-%d: y" % number for number in range(chance.randrange(300))]
    if data and chance.random() < odd:
        headers.append(b"Transfer-Encoding: chunked")
        data = _chunked(data, chance)
    elif data:
        headers.append(b"Content-Length: %d" % len(data))
    version = chance.choice((b"1.0", b"2.0", b"9")) if chance.random() < odd / 2 else b"1.1"
    line = f"{method} {path}".encode("latin-1") + b" HTTP/" + version
    return b"\r\n".join([line, *headers, b"", data])


def _asked(calls: Calls, chance: random.Random) -> tuple[str, str, bytes, list[bytes]]:
    """Return method, path, body, and the headers that speak of the body."""
    if not calls.bodies or (calls.pages and chance.random() < 0.1):
        return "GET", chance.choice(calls.pages), b"", []
    path, body = chance.choice(calls.bodies)
    return "POST", path, *_encoded(_mutated_often(body, chance), chance)


def _mutated_often(value: Any, chance: random.Random) -> Any:
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        value = mutated(value, chance)
    return value


def mutated(value: Any, chance: random.Random) -> Any:
    """Return the value with one piece of it replaced by junk, doubled, or left out."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return copy.deepcopy(chance.choice(JUNK))
    answer = copy.copy(value)
    place: Any = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
    if chance.random() < 0.1:
        del answer[place]
    elif isinstance(answer, list) and chance.random() < 0.1:
        answer.append(answer[place])
    else:
        answer[place] = mutated(value[place], chance)
    return answer


def _encoded(value: Any, chance: random.Random) -> tuple[bytes, list[bytes]]:
    """Return a body, and the headers that speak of it."""
    encode, headers = chance.choice(ENCODINGS)
    try:
        data = encode(value, chance)
    except (OverflowError, ValueError):  # MessagePack has no such numbers, and no lone surrogates
        data = _json(value, chance)
    return (damaged(data, chance) if chance.random() < 0.1 else data), headers


def _json(value: Any, _: random.Random) -> bytes:
    import json  # msgspec encodes neither lone surrogates nor large integers

    return json.dumps(value, ensure_ascii=True).encode()


def _deep(value: Any, chance: random.Random) -> bytes:
    """Return brackets, alone or in an unknown field of the value."""
    opening = chance.choice((b"[", b'{"a":', b'[{"a":')) * chance.choice((100, 1_000, 30_000))
    data = _json(value, chance)
    return data[:-1] + b',"unknown":' + opening if data.endswith(b"}") and chance.random() < 0.8 else opening


def _deep_pack(value: Any, chance: random.Random) -> bytes:
    return b"\x81\xa4deep" + b"\x91" * chance.choice((100, 1_000, 100_000))


def _noise(value: Any, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 2_000))


def _zipped(value: Any, chance: random.Random) -> bytes:
    data = _json(value, chance) if chance.random() < 0.7 else b" " * 3_000_000
    return zlib.compress(data)


def _pack(value: Any, _: random.Random) -> bytes:
    return msgspec.msgpack.encode(value)


Encode = Callable[[Any, random.Random], bytes]
JSON, PACK = b"Content-Type: application/json", b"Content-Type: application/msgpack"
ENCODINGS: tuple[tuple[Encode, list[bytes]], ...] = (
    *(((_json, [JSON]),) * 30),
    *(((_pack, [PACK]),) * 4),
    (_deep, [JSON]),
    (_deep_pack, [PACK]),
    (_noise, [JSON]),
    (_noise, [PACK]),
    (_zipped, [JSON, b"Content-Encoding: deflate"]),
)


def _chunked(data: bytes, chance: random.Random) -> bytes:
    cut = chance.randrange(len(data) + 1)
    pieces = [piece for piece in (data[:cut], data[cut:]) if piece]
    size = chance.choice(("%x", "%x", "%x", "%X;x=y", "-%x", "0%x", "g%x"))
    chunks = b"".join((size % len(piece)).encode() + b"\r\n" + piece + b"\r\n" for piece in pieces)
    return chunks + chance.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX-Trailer: y\r\n\r\n", b""))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with some of them changed, taken away or put in."""
    answer = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(answer) + 1)
        match chance.randrange(3):
            case 0 if place < len(answer):
                answer[place] = chance.randrange(256)
            case 1:
                del answer[place : place + chance.randrange(1, 20)]
            case _:
                answer[place:place] = chance.choice((b"\r\n", b"\0", b"\xff", b"[" * 50, b"\r\n\r\n", b":"))
    return bytes(answer)
