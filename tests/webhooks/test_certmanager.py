"""config/certmanager: its parts name each other, the Service, and settings that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.controllers.settings import Settings
from elasticjob.kube.webhook.server import ServiceRef

CONFIG = Path(__file__).parents[2] / "config"
PREFIX = "ELASTICJOB_OPERATOR_"


def parsed(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CONFIG / path).read_text()))


def the(manifests: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    found = [each for each in manifests if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    assert len(found) == 1
    return found[0]


def container(path: str) -> dict[str, Any]:
    pod = the(parsed(path), "Deployment", "elasticjob-operator")["spec"]["template"]["spec"]
    found: dict[str, Any] = next(each for each in pod["containers"] if each["name"] == "operator")
    return found


def environment(path: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(path)["env"] if "value" in each}


PATCH = "certmanager/deployment.yaml"
CERTIFICATES = parsed("certmanager/certificates.yaml")


def test_the_operator_reads_what_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(PATCH).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    pod = the(parsed(PATCH), "Deployment")["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each["name"] for each in container(PATCH)["volumeMounts"]}
    volumes = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"]}
    namespace, _, name = settings.webhook_inject_from.partition("/")
    certificate = the(CERTIFICATES, "Certificate", name)
    assert volumes[mounts[settings.webhook_certificates]] == certificate["spec"]["secretName"]
    assert certificate["metadata"]["namespace"] == namespace


def test_the_certificate_is_for_the_name_by_which_the_api_server_calls() -> None:
    service = environment("operator/deployment.yaml")[f"{PREFIX}WEBHOOK_SERVICE"]
    namespace, _, name = service.partition("/")
    certificate = the(CERTIFICATES, "Certificate", "elasticjob-webhooks")
    assert ServiceRef(namespace, name).host in certificate["spec"]["dnsNames"]
    assert "server auth" in certificate["spec"]["usages"]


def test_every_issuer_that_is_named_exists() -> None:
    issuers = {each["metadata"]["name"] for each in CERTIFICATES if each["kind"] == "Issuer"}
    named = {each["spec"]["issuerRef"]["name"] for each in CERTIFICATES if each["kind"] == "Certificate"}
    assert named == issuers


def test_all_settings_of_the_patch_exist() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    assert environment(PATCH).keys() <= known
