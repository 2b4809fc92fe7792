"""Host and port as one text, and back."""

import pytest

from elasticjob.api.rpc.address import host_port, parts


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("node-1", 29400, "node-1:29400"),
        ("10.0.0.1", 1, "10.0.0.1:1"),
        ("::1", 50001, "[::1]:50001"),
        ("fe80::2%eth0", 0, "[fe80::2%eth0]:0"),
        ("", 8080, ":8080"),
    ],
)
def test_an_address_is_host_and_port_and_comes_apart_again(host: str, port: int, address: str) -> None:
    assert host_port(host, port) == host_port(host, str(port)) == address
    assert parts(address) == (host, port)
