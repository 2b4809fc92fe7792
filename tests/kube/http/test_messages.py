"""Errors of requests: one line, with the address and the cause."""

from __future__ import annotations

import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from elasticjob.kube.http.messages import in_words

PLACE = ConnectionKey("10.0.0.1", 9443, True, ssl.create_default_context(), None, None, None)
UNTRUSTED = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectorError(PLACE, OSError(111, "…")), "10.0.0.1:9443: Connection refused"),
        (aiohttp.ClientConnectorDNSError(PLACE, OSError(-2, "no name")), "10.0.0.1:9443: no name"),
        (
            aiohttp.ClientConnectorSSLError(PLACE, ssl.SSLError(1, "[SSL] wrong version")),
            "10.0.0.1:9443: [SSL] wrong version",
        ),
        (
            aiohttp.ClientConnectorCertificateError(PLACE, UNTRUSTED),
            "10.0.0.1:9443: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        ),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("two\n lines"), "two lines"),
    ],
)
def test_an_error_of_a_request_is_one_line(error: Exception, words: str) -> None:
    assert in_words(error) == words


async def test_a_server_that_is_away_is_told_by_its_address() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as away:
            await session.get("https://127.0.0.1:9", ssl=ssl.create_default_context())
    assert in_words(away.value) == "127.0.0.1:9: Connection refused"
