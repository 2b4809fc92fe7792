"""The list of parts (SBOM) of an image or a wheel: CycloneDX as JSON, the same bytes for the same parts."""

from __future__ import annotations

import platform
import subprocess
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from lab.clusters.images.oci import Entries, File

LICENCES: Final = LicenseFactory()
SYSTEM: Final = ("/usr/lib", "/lib")


def parts(product: Component, components: Iterable[Component], when: datetime | None = None) -> str:
    """Return the list as JSON, for a time that is not that of writing it."""
    found = sorted(components, key=lambda each: str(each.purl))
    names = "\n".join(str(each.purl) for each in (product, *found))
    bom = Bom(components=found, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, names))
    bom.metadata.component = product
    bom.metadata.timestamp = when or datetime.fromtimestamp(0, UTC)
    bom.register_dependency(product, found)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def component(purl: PackageURL, kind: ComponentType = ComponentType.LIBRARY, **more: Any) -> Component:
    """Return a part that its package URL names."""
    about = {"name": purl.name, "version": purl.version, "bom_ref": str(purl)} | more
    return Component(type=kind, purl=purl, **about)


def image(name: str, version: str, digest: str) -> Component:
    """Return the image itself, by the digest of its manifest."""
    qualifiers = {"tag": version, "repository_url": f"docker.io/elasticjob/{name}"}
    purl = PackageURL("oci", None, name, digest, qualifiers)
    sha = HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))
    about = {"name": f"elasticjob/{name}", "version": version, "bom_ref": name, "hashes": [sha]}
    return component(purl, ComponentType.CONTAINER, **about)


def package(version: str) -> Component:
    """Return our own package."""
    return component(PackageURL("pypi", None, "elasticjob", version))


def python() -> Component:
    """Return the interpreter."""
    purl = PackageURL("generic", None, "cpython", platform.python_version())
    return component(purl, ComponentType.PLATFORM)


def distribution(found: Distribution) -> Component:
    """Return an installed distribution with its licence, as far as it tells one."""
    name = found.metadata["Name"]
    known = [found.metadata[key] for key in ("License-Expression", "License") if key in found.metadata]
    short = known[0].strip().split("\n")[0] if known and len(known[0]) < 100 else ""
    licenses = [LICENCES.make_from_string(short)] if short else []
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), found.version)
    return component(purl, name=name, licenses=licenses)


def debian(entries: Entries) -> list[Component]:
    """Return the Debian packages whose files are among entries; none on another system."""
    found = (entry.content for entry in entries.values() if isinstance(entry, File))
    files = {str(path) for path in found if isinstance(path, Path) and str(path).startswith(SYSTEM)}
    owners = _printed("dpkg", "-S", *sorted(files))
    names = sorted({line.partition(": ")[0].split(",")[0] for line in owners if ": /" in line})
    listed = _printed("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names) if names else []
    packages = (line.split() for line in listed)
    return [component(PackageURL("deb", "debian", name, version)) for name, version in packages]


def _printed(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()
