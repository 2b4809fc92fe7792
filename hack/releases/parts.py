"""The list of parts (SBOM) of an image or a wheel: CycloneDX as JSON, the same bytes for the same parts."""

from __future__ import annotations

import platform
import subprocess
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from lab.clusters.images.oci import Entries, File

LICENCES: Final = LicenseFactory()


def parts(product: Component, components: Iterable[Component], when: datetime | None = None) -> str:
    """Return the list as JSON, for a time that is not that of writing it."""
    found = sorted(components, key=lambda each: str(each.purl))
    names = "\n".join(str(each.purl) for each in (product, *found))
    bom = Bom(components=found, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, names))
    bom.metadata.component = product
    bom.metadata.timestamp = when or datetime.fromtimestamp(0, UTC)
    bom.register_dependency(product, found)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def image(name: str, version: str, digest: str) -> Component:
    """Return the image itself, by the digest of its manifest."""
    purl = PackageURL(
        "oci", None, name, digest, {"tag": version, "repository_url": f"docker.io/elasticjob/{name}"}
    )
    sha = HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))
    return Component(
        name=f"elasticjob/{name}",
        version=version,
        type=ComponentType.CONTAINER,
        purl=purl,
        hashes=[sha],
        bom_ref=name,
    )


def package(version: str) -> Component:
    """Return our own package."""
    purl = PackageURL("pypi", None, "elasticjob", version)
    return Component(
        name="elasticjob", version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl)
    )


def python() -> Component:
    """Return the interpreter."""
    purl = PackageURL("generic", None, "cpython", platform.python_version())
    return Component(
        name="cpython", version=purl.version, type=ComponentType.PLATFORM, purl=purl, bom_ref=str(purl)
    )


def distribution(found: Distribution) -> Component:
    """Return an installed distribution with its licence, as far as it tells one."""
    name, version = found.metadata["Name"], found.version
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), version)
    told = next(
        (found.metadata[key] for key in ("License-Expression", "License") if key in found.metadata), ""
    )
    short = told.strip().splitlines()[0] if told.strip() and len(told) < 100 else ""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=purl,
        licenses=[LICENCES.make_from_string(short)] if short else [],
        bom_ref=str(purl),
    )


def debian(entries: Entries) -> list[Component]:
    """Return the Debian packages whose files are among entries; none on another system."""
    files = {
        str(entry.content) for entry in entries.values() if isinstance(entry, File) and _of_system(entry)
    }
    try:
        owners = subprocess.run(
            ["dpkg", "-S", *sorted(files)], capture_output=True, text=True, check=False
        ).stdout
        names = sorted(
            {line.partition(": ")[0].split(",")[0] for line in owners.splitlines() if ": /" in line}
        )
        form = "${Package} ${Version}\n"
        query = ["dpkg-query", "-W", "-f", form, *names]
        listed = subprocess.run(query, capture_output=True, text=True, check=False).stdout if names else ""
    except FileNotFoundError:
        return []
    found = []
    for line in listed.splitlines():
        name, version = line.split()
        purl = PackageURL("deb", "debian", name, version)
        found.append(
            Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))
        )
    return found


def _of_system(entry: File) -> bool:
    return isinstance(entry.content, Path) and str(entry.content).startswith(("/usr/lib", "/lib"))
