# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SBOM of a release, in CycloneDX: its artefacts, the library that the command contains, and what the collection requires."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

NAME, LICENCE = "kubenode-datapath", LicenseExpression("GPL-3.0-or-later")
LIBRARY_LICENCE = LicenseExpression("Apache-2.0 OR GPL-2.0-or-later")  # of pyroute2
HOME = "https://github.com/kubenode/datapath"
COMMANDS = ("kubectl-datapath", "kubenode-datapath.pyz", ".whl")  # what contains the library


def text(version: str, artefacts: dict[str, str], sources: Path, moment: int) -> str:
    """Return the SBOM as JSON. artefacts: SHA-256 digests by name. moment: seconds of its time."""
    whole = Component(
        name=NAME,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=NAME,
        licenses=[LICENCE],
        external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(HOME))],
    )
    bill = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, "".join([HOME, version, *artefacts.values()])),
        metadata=BomMetaData(component=whole, timestamp=datetime.fromtimestamp(moment, timezone.utc)),
    )
    files = [_file(name, digest) for name, digest in artefacts.items()]
    libraries = {library.name: library for library in _libraries(sources)}
    bill.components.update([*files, *libraries.values()])
    bill.register_dependency(whole, [*files, *libraries.values()])
    for file in files:
        if file.name.endswith(COMMANDS):
            bill.register_dependency(file, [libraries["pyroute2"]])
    return JsonV1Dot6(bill).output_as_string(indent=2) + "\n"


def _file(name: str, digest: str) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Component(name=name, type=ComponentType.FILE, bom_ref=name, hashes=hashes, licenses=[LICENCE])


def _libraries(sources: Path) -> Iterator[Component]:
    """Yield the libraries of Python: the one that the command contains, by version, and the collection's requirements."""
    project = (sources / "deploy/cli/pyproject.toml").read_text()
    ((contained, version),) = re.findall(r'^requires = \["(.*)==(.*)"\]$', project, re.MULTILINE)
    yield _library(contained, version, LIBRARY_LICENCE)
    for name, _version in re.findall(r"^([\w.-]+)(?:>=(\S+))?$", (sources / "meta/requirements.txt").read_text(), re.MULTILINE):
        if name != contained:
            yield _library(name)


def _library(name: str, version: str | None = None, licence: LicenseExpression | None = None) -> Component:
    purl = PackageURL("pypi", name=name, version=version)
    licences = [licence] if licence else []
    return Component(name=name, version=version, type=ComponentType.LIBRARY, bom_ref=name, purl=purl, licenses=licences)
