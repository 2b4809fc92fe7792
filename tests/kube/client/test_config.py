"""Finding the cluster, and credentials that others rotate."""

from __future__ import annotations

import asyncio
import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from elasticjob.kube.client import config, kubeconfig
from elasticjob.kube.client.credentials import REREAD_AFTER, TokenFile
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import ConfigError
from elasticjob.kube.webhook.certs.certificates import new_authority
from lab.waiting import PATIENCE
from tests.kit.kube.kubeconfigs import plugin, write
from tests.kit.kube.stub import until

AUTHORITY = new_authority("test", datetime.now(UTC))


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(AUTHORITY.certificate)
    path = write(tmp_path / "config", {"token": "t1"}, {"certificate-authority": str(ca)})
    found = await config.load(path)
    assert (found.server, found.namespace) == ("https://one:6443", "lab")
    assert await found.credentials.header() == "Bearer t1"
    assert found.ssl is not None
    assert found.ssl.verify_mode is ssl.CERT_REQUIRED
    assert len(found.ssl.get_ca_certs()) == 1


async def test_another_context_and_plain_http(tmp_path: Path) -> None:
    found = await config.load(write(tmp_path / "config", {"token": "t1"}), "two")
    assert (found.server, found.namespace, found.ssl) == ("http://two:8080", "default", None)


async def test_skipping_verification(tmp_path: Path) -> None:
    found = await config.load(write(tmp_path / "config", {}, {"insecure-skip-tls-verify": True}))
    assert found.ssl is not None
    assert found.ssl.verify_mode is ssl.CERT_NONE
    assert await found.credentials.header() is None


async def test_the_environment_names_the_kubeconfig_and_home_comes_second(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", {"token": "home"})
    other = write(tmp_path / "other", {"token": "env"})
    home = {"HOME": str(tmp_path)}
    for environ, token in (({"KUBECONFIG": str(other)} | home, "env"), (home, "home")):
        found = await config.load(environ=environ)
        assert await found.credentials.header() == f"Bearer {token}"


@pytest.mark.parametrize(
    "text", ["{}", "current-context: x\ncontexts: []\nclusters: []\nusers: []", "current-context: ["]
)
async def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        await config.load(path)
    assert str(path) in str(caught.value)


async def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cluster: set KUBECONFIG"):
        await config.load(environ={"HOME": str(tmp_path)})


async def test_in_a_pod(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    (tmp_path / "namespace").write_text("lab")
    (tmp_path / "token").write_text("t1\n")
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = await config.load(environ=environ, service_account=tmp_path)
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "lab")
    assert await found.credentials.header() == "Bearer t1"
    found = await config.load(
        environ=environ | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=tmp_path
    )
    assert found.server == "https://[fd00::1]:443"
    with pytest.raises(ConfigError, match="service account"):
        await config.load(environ=environ, service_account=tmp_path / "nowhere")


async def test_a_token_file_is_read_again_after_a_minute_or_a_refusal(tmp_path: Path) -> None:
    clock, path = VirtualClock(), tmp_path / "token"
    source = TokenFile(path, clock)
    path.write_text("t1")
    assert await source.header() == "Bearer t1"
    path.write_text("t2")
    assert await source.header() == "Bearer t1"
    assert await source.header(refused="Bearer t1") == "Bearer t2"
    path.write_text("t3")
    assert await source.header(refused="Bearer t1") == "Bearer t2"
    await clock.advance(REREAD_AFTER)
    assert await source.header() == "Bearer t3"


async def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="token file"):
        await TokenFile(tmp_path / "token").header()
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        await TokenFile(tmp_path / "token").header()


async def test_many_refusals_of_one_token_run_the_plugin_once(tmp_path: Path) -> None:
    path = write(tmp_path / "config", plugin(tmp_path))
    found = await kubeconfig.load(str(path), clock=VirtualClock())
    headers = await asyncio.gather(*[found.credentials.header(refused="Bearer t1") for _ in range(5)])
    assert headers == ["Bearer t2"] * 5


async def test_a_token_that_is_refused_again_and_again_runs_the_plugin_now_and_then(tmp_path: Path) -> None:
    clock, user = VirtualClock(), plugin(tmp_path, token="always")
    found = await kubeconfig.load(str(write(tmp_path / "config", user)), clock=clock)
    for _ in range(3):
        await asyncio.gather(*[found.credentials.header(refused="Bearer always") for _ in range(5)])
    assert (tmp_path / "runs").read_text() == "run\n" * 2
    await clock.advance(kubeconfig.TRY_AGAIN)
    assert await found.credentials.header(refused="Bearer always") == "Bearer always"
    assert (tmp_path / "runs").read_text() == "run\n" * 3


async def test_a_plugin_that_fails_leaves_what_is_still_valid(tmp_path: Path) -> None:
    clock = VirtualClock()
    expires = (clock.now() + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    path = write(tmp_path / "config", plugin(tmp_path, expirationTimestamp=expires))
    found = await kubeconfig.load(str(path), clock=clock)
    (tmp_path / "plugin").write_text("#!/bin/sh\nexit 1\n")
    await clock.advance(timedelta(minutes=9, seconds=30).total_seconds())
    assert await found.credentials.header() == "Bearer t1"
    await clock.advance(timedelta(minutes=1).total_seconds())
    with pytest.raises(ConfigError):
        await found.credentials.header()


async def test_a_plugin_that_fails_for_what_has_ended_runs_now_and_then(tmp_path: Path) -> None:
    clock = VirtualClock()
    found = await kubeconfig.load(str(write(tmp_path / "config", plugin(tmp_path))), clock=clock)
    (tmp_path / "plugin").write_text(f'#!/bin/sh\necho run >> "{tmp_path}/runs"\nexit 1\n')
    for runs in (2, 3):
        asked = [found.credentials.header(refused="Bearer t1") for _ in range(5)]
        refusals = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in refusals] == [ConfigError] * 5
        assert (tmp_path / "runs").read_text() == "run\n" * runs
        await clock.advance(kubeconfig.TRY_AGAIN)


async def test_a_plugin_goes_on_when_the_request_that_needs_it_is_given_up(tmp_path: Path) -> None:
    found = await kubeconfig.load(
        str(write(tmp_path / "config", plugin(tmp_path, token="t2"))), clock=VirtualClock()
    )
    program = (tmp_path / "plugin").read_text()
    waiting = f'while [ ! -e "{tmp_path}/gate" ]; do sleep 0.02; done\nsed s/t2/late/'
    (tmp_path / "plugin").write_text(re.sub(r"sed \S+", waiting, program))
    given_up = asyncio.create_task(found.credentials.header(refused="Bearer t2"))
    await until(lambda: (tmp_path / "runs").read_text() == "run\n" * 2)
    given_up.cancel()
    await asyncio.wait({given_up})
    patient = asyncio.create_task(found.credentials.header(refused="Bearer t2"))
    await asyncio.sleep(0)
    (tmp_path / "gate").touch()
    assert await patient == "Bearer late"
    assert (tmp_path / "runs").read_text() == "run\n" * 2


async def test_a_token_that_cannot_be_read_again_serves_until_it_is_refused(tmp_path: Path) -> None:
    clock, path = VirtualClock(), tmp_path / "token"
    source = TokenFile(path, clock)
    path.write_text("t1")
    await source.header()
    path.unlink()
    await clock.advance(REREAD_AFTER)
    assert await source.header() == "Bearer t1"
    with pytest.raises(ConfigError, match="token file"):
        await source.header(refused="Bearer t1")


async def test_an_exec_plugin_that_hangs_holds_nobody_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = plugin(tmp_path)
    path = write(tmp_path / "config", user)
    (tmp_path / "plugin").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(kubeconfig, "PLUGIN_TIMEOUT", 3.0)  # a shell has begun by then, or nearly so
    before = psutil.Process().children(recursive=True)
    with pytest.raises(ConfigError, match=r"config cannot be used: .* within 3 s"):
        await asyncio.wait_for(kubeconfig.load(str(path), clock=VirtualClock()), PATIENCE)
    assert [each for each in psutil.Process().children(recursive=True) if each not in before] == []
