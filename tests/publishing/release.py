# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make release``: every artefact of a version, to the same bytes each time, with an SBOM and checksums.

    release.py SOURCES FOLDER...    build the artefacts of a copy of the checkout in each folder, and compare them

SOURCE_DATE_EPOCH is the time of the artefacts, by default that of the commit. A commit that has the tag of the version must have
its changelog, no fragment that is left over, and facts that were looked up lately.
"""

from __future__ import annotations

import datetime
import filecmp
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

import installation
from installation import ROOT, NotInstalled

from generators import profile_facts
from publishing import bill_of_materials

sys.path.insert(0, str(ROOT / "deploy/cli"))
import packing

SUMS = "SHA256SUMS"


def main(sources: Path, folders: list[Path]) -> None:
    version = installation.version()
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or installation.output(["git", "log", "-1", "--format=%ct"]) or 0)
    print(state(sources, version, tags(), installation.output(["git", "status", "--porcelain"]), moment))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        build(sources, folder, version, moment)
    for other in folders[1:]:
        if different := unequal(folders[0], other):
            raise NotInstalled(f"two builds of one commit differ: {', '.join(different)}")
    print((folders[0] / SUMS).read_text(), end="")


def tags() -> list[str]:
    """Return the tags of this commit."""
    return installation.output(["git", "tag", "--points-at", "HEAD"]).split()


def state(sources: Path, version: str, of_commit: list[str], changes: str, moment: int) -> str:
    """Return a sentence that says whether a commit with these tags is the release of its version. Raises NotInstalled.

    changes: what differs from the commit, as git status prints it. moment: of the release, in seconds since 1970.
    """
    fragments = sorted(path.name for path in (sources / "changelogs/fragments").glob("*.yml"))
    tag = f"v{version}"
    if tag not in of_commit:
        return f"{tag} is no tag of this commit, which has {len(fragments)} unreleased fragments of the changelog"
    if changes:
        raise NotInstalled(f"{tag} is the tag of this commit, from which the checkout differs:\n{changes}")
    if fragments:
        raise NotInstalled(f"{tag} leaves these fragments of the changelog unreleased: {', '.join(fragments)}")
    day = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).date()
    if old := profile_facts.overdue(profile_facts.read(sources), day):
        raise NotInstalled(
            f"{profile_facts.NAME} has entries that were compared with their references more than"
            f" {profile_facts.OLDEST.days} days before {tag}; compare them again: {', '.join(old)}"
        )
    if f"\n  {version}:\n" not in (sources / "changelogs/changelog.yaml").read_text():
        raise NotInstalled(f"changelogs/changelog.yaml has no {version}, whose tag this commit has")
    return f"{tag} is the tag of this commit, and its changelog is complete"


def build(sources: Path, folder: Path, version: str, moment: int) -> None:
    """Write the artefacts into a folder."""
    folder.mkdir(parents=True)
    collection(sources, folder, moment)
    packing.main(folder)
    packing.build_wheel(str(folder))
    chart(sources / "deploy/chart", folder, version, moment)
    artefacts = {path.name: digest(path) for path in sorted(folder.iterdir())}
    bill = folder / f"kubenode-datapath-{version}.cdx.json"
    bill.write_text(bill_of_materials.text(version, artefacts, sources, moment))
    sums = {**artefacts, bill.name: digest(bill)}
    (folder / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def collection(sources: Path, folder: Path, moment: int) -> None:
    """Build the collection as Galaxy takes it, in the order of the names and with one time.

    ansible-galaxy takes files in the order of the file system, and writes their times.
    """
    with tempfile.TemporaryDirectory() as place:
        galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
        command = [galaxy, "collection", "build", "--output-path", place, str(sources)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (built,) = Path(place).glob("*.tar.gz")
        with tarfile.open(built) as packed:
            contents = {member.name: _content(packed, member) for member in packed.getmembers()}
            modes = {member.name: member.mode for member in packed.getmembers()}
    contents.update(_listed(contents))
    names = ["MANIFEST.json", "FILES.json", *sorted(contents.keys() - {"MANIFEST.json", "FILES.json"})]
    pack(folder / built.name, [(name, contents[name], modes[name]) for name in names], moment)


def _content(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    """Return the content of a file; None for a folder. Raises NotInstalled."""
    if member.isdir():
        return None
    reader = packed.extractfile(member)
    if not member.isfile() or reader is None:
        raise NotInstalled(f"{member.name} of the collection is neither a file nor a folder")
    return reader.read()


def _listed(contents: dict[str, bytes | None]) -> dict[str, bytes]:
    """Return the two lists of a collection's files, in the order of the names."""
    files = json.loads(contents["FILES.json"] or b"")
    files["files"].sort(key=lambda entry: entry["name"])
    listed = json.dumps(files, indent=True).encode()
    manifest = json.loads(contents["MANIFEST.json"] or b"")
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listed).hexdigest()
    return {"FILES.json": listed, "MANIFEST.json": json.dumps(manifest, indent=True).encode()}


def chart(source: Path, folder: Path, version: str, moment: int) -> None:
    """Pack the chart as ``helm package`` does: below its name, Chart.yaml first."""
    paths = sorted((path for path in source.rglob("*") if path.is_file()), key=lambda path: (path.name != "Chart.yaml", path))
    name = "kubenode-datapath"
    files = [(f"{name}/{path.relative_to(source)}", path.read_bytes(), 0o644) for path in paths]
    pack(folder / f"{name}-{version}.tgz", files, moment)


def pack(target: Path, files: Iterable[tuple[str, bytes | None, int]], moment: int) -> None:
    """Write an archive of files (name, content, mode) and folders, which have no content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, mode in files:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.size, member.mode, member.mtime = len(content or b""), mode, moment
            archive.addfile(member, io.BytesIO(content or b""))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=moment))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unequal(first: Path, second: Path) -> list[str]:
    """Return the names of files that differ, or that one folder lacks."""
    names = {path.name for folder in (first, second) for path in folder.iterdir()}
    _same, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
    return sorted([*different, *missing])


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    except NotInstalled as reason:
        sys.exit(f"release: {reason}")
