# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages for nodes that have no network: downloaded once, served from a folder on the node."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lab import host, images
from lab.booting import BootingNode
from lab.entering import LabError

FOLDER = "/srv/apt"
SOURCES = "/etc/apt/sources.list.d/lab.list"


def packages(suite: str, names: Iterable[str] = ("nftables",), node_packages: Iterable[str] = images.NODE_PACKAGES) -> list[Path]:
    """The .deb files of ``names`` in ``suite``, and their dependencies that a node made of ``node_packages`` lacks.

    Downloaded once, by the host's apt-get with lists and a cache of its own, into images.cache().
    """
    root = images.root(suite, node_packages)
    key = hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()[:12]
    target = images.cache() / "debs" / f"{root.name}-{key}"
    return sorted(images.made_once(target, lambda folder: _download(suite, names, root, folder)).glob("*.deb"))


def unpack(suite: str, name: str, folder: Path) -> None:
    """Unpacks a package of ``suite``, without its dependencies, in an existing folder."""
    (package,) = (package for package in packages(suite, [name]) if package.name.startswith(f"{name}_"))
    host.run(["dpkg-deb", "--extract", package, folder])


def publish(node: BootingNode, debs: Iterable[Path]) -> None:
    """Make exactly these packages available to apt on the node, in place of those that were published before.

    The node's own index (``apt-get update``) is not updated: it is then stale, which is a case to test.
    """
    with tempfile.TemporaryDirectory() as folder:
        for deb in debs:
            shutil.copy(deb, folder)
        Path(folder, "Packages").write_text("\n".join(_index_entry(deb) for deb in sorted(Path(folder).glob("*.deb"))))
        node.remove(FOLDER)
        node.copy_in(Path(folder), FOLDER)
    # "copy:" and not "file:", whose index apt links to and so can never be stale.
    node.write(SOURCES, f"deb [trusted=yes] copy:{FOLDER} ./\n")


def source(suite: str, package: str, folder: Path) -> Path:
    """The .dsc file of a source package, beside the files that it names; apt has verified all of them.

    ``folder`` is made. Nothing is unpacked.
    """
    archives = _Apt(suite, folder, images.root(suite), "deb-src")
    archives.run("update")
    (folder / "files").mkdir()
    archives.run("source", "--download-only", package, cwd=folder / "files")
    (described,) = (folder / "files").glob("*.dsc")
    return described


def _download(suite: str, names: Iterable[str], root: Path, folder: Path) -> None:
    """Let apt-get resolve dependencies against the package database of ``root``, and download the files into the folder."""
    archives = _Apt(suite, folder, root)
    archives.run("update")
    archives.run("install", "--download-only", "--yes", *names)
    for deb in (folder / "archives").glob("*.deb"):
        deb.rename(folder / deb.name)
    for working in ("archives", "lists"):
        shutil.rmtree(folder / working)


class _Apt:
    """The host's apt-get with a release, lists and a cache of its own in ``folder``; ``root`` lists the installed packages."""

    def __init__(self, suite: str, folder: Path, root: Path, kind: str = "deb") -> None:
        for made in ("lists/partial", "archives/partial"):
            (folder / made).mkdir(parents=True)
        lines = images.sources(suite)
        if not lines:
            raise LabError(f"no mirror of Debian {suite} is known: apt on this machine names none")
        (folder / "sources.list").write_text("".join(f"{kind} {line.removeprefix('deb ')}\n" for line in lines))
        options = {
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": folder / "lists",
            "Dir::State::status": root / "var/lib/dpkg/status",
            "Dir::State::extended_states": folder / "extended_states",
            "Dir::Cache::archives": folder / "archives",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "APT::Update::Post-Invoke-Success::": "true",
        }
        self._command = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]

    def run(self, *words: str, cwd: Path | None = None) -> None:
        host.run([*host.ALONE, *self._command, *words], cwd=cwd)


def _index_entry(deb: Path) -> str:
    control = host.run(["dpkg-deb", "--field", deb])
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    return f"{control}Filename: ./{deb.name}\nSize: {os.path.getsize(deb)}\nSHA256: {digest}\n"
