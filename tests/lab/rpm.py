# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node where dnf is the package manager, with a repository of tiny packages named nftables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from lab import host, images
from lab.container import SystemdNode

PACKAGES = (*images.NODE_PACKAGES, "dnf", "rpm")
"""What to make the node's image of: Debian, which has dnf as a package. See ``prepare``."""

FOLDER = "/srv/rpm"

# The package carries nftables.service, as the real one does, and an nft that only prints its version.
# AutoReq off: on Debian nothing in the rpm database provides /bin/sh.
_SPEC = """\
Name: nftables
Version: @VERSION@
Release: 1
Summary: stands for nftables in a test
License: GPL-3.0-or-later
BuildArch: noarch
AutoReqProv: no
%description
Stands for nftables in a test.
%install
mkdir -p %{buildroot}/usr/sbin %{buildroot}/usr/lib/systemd/system
printf '#!/bin/sh\\necho "nftables v@VERSION@ (lab)"\\n' > %{buildroot}/usr/sbin/nft
chmod 755 %{buildroot}/usr/sbin/nft
printf '[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n[Install]\\nWantedBy=sysinit.target\\n' \\
    > %{buildroot}/usr/lib/systemd/system/nftables.service
%files
/usr/sbin/nft
/usr/lib/systemd/system/nftables.service
"""


def prepare(node: SystemdNode) -> None:
    """Turn a booted node with PACKAGES into one with rpm: dpkg and apt are removed, and dnf has only the repository FOLDER."""
    node.run(["sh", "-c", "rm -f /usr/bin/apt* /usr/bin/dpkg* /etc/debian_version"])
    node.write("/etc/os-release", 'ID=azurelinux\nVERSION_ID="3.0"\nNAME="Microsoft Azure Linux"\nPRETTY_NAME="Lab with dnf"\n')
    node.write("/etc/yum.repos.d/lab.repo", f"[lab]\nname=lab\nbaseurl=file://{FOLDER}\ngpgcheck=0\nmetadata_expire=never\n")
    publish(node, [])


def publish(node: SystemdNode, versions: Iterable[str]) -> None:
    """Offer nftables in exactly these versions. dnf's cache (``dnf makecache``) is then stale."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "repository")
        repository.mkdir()
        for version in versions:
            _build(version, Path(folder), repository)
        host.run(["createrepo_c", "--quiet", repository])
        node.remove(FOLDER)
        node.copy_in(repository, FOLDER)


def _build(version: str, folder: Path, repository: Path) -> None:
    spec = folder / f"nftables-{version}.spec"
    spec.write_text(_SPEC.replace("@VERSION@", version))
    defined = {"_topdir": folder / "build", "_rpmdir": repository}
    options = [part for name, value in defined.items() for part in ("--define", f"{name} {value}")]
    host.run(["rpmbuild", "--quiet", "-bb", *options, spec])
