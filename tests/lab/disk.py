# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files from which a VM starts: a disk with a Debian root and, beside it, the kernel of that root and the keys to log in.

Its files can be read and changed while no VM runs from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lab import host, images
from lab.entering import LabError
from lab.machine import Machine

PACKAGES = (
    *images.USUAL_PACKAGES, "ebtables", "ethtool", "ipvsadm", "iptables", "linux-image-cloud-amd64", "openssh-server",
)  # fmt: skip
"""Debian's cloud kernel has NVMe and ext4 built in, so it needs no initrd, and as modules what test hosts often lack:
ebtables-legacy with broute, IPVS, dummy, VLAN, VRF, ipset."""

_SIZE = "2G"  # sparse; the root takes a fifth of it

# Arguments: the root, a folder for the results. In a mount namespace of its own: others use the root, so changes
# go to a layer above it. The kernel's command line tells each VM its network (systemd-network-generator).
# The masked units have no effect here, but take seconds of the boot.
_MAKE = f"""
set -eu
mount -t tmpfs lab /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir="$1",upperdir=/mnt/upper,workdir=/mnt/work lab /mnt/root
ssh-keygen -q -t ed25519 -N '' -C lab -f "$2/key"
cp "$2/key.pub" /mnt/root/root/.ssh/authorized_keys
cp /mnt/root/etc/ssh/ssh_host_ed25519_key.pub "$2/host_key.pub"
cp /mnt/root/boot/vmlinuz-* "$2/vmlinuz"
rm -r /mnt/root/boot/*
chroot /mnt/root systemctl --quiet enable systemd-networkd systemd-network-generator
chroot /mnt/root systemctl --quiet mask systemd-networkd-wait-online.service getty@tty1.service serial-getty@ttyS0.service \\
  systemd-binfmt.service systemd-pstore.service dev-hugepages.mount dev-mqueue.mount ipvsadm.service \\
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
truncate --size {_SIZE} "$2/disk"
mke2fs -q -t ext4 -d /mnt/root "$2/disk"
"""


class Disk(NamedTuple):
    """``image`` is raw, and read by many VMs at a time. ``key`` opens root's account, ``host_key`` is "type base64"."""

    image: Path
    kernel: Path
    key: Path
    host_key: str


_LIST = """
import json
from pathlib import Path
from lab import snapshot
print(json.dumps(snapshot.tree(Path("/mnt"), ("",))))
"""


class DiskFiles(Machine):
    """The files of a raw disk, as a machine whose commands are those on it.

    Each command has the disk mounted for itself alone, so that nothing stays mounted, however it ends.
    """

    def __init__(self, image: Path) -> None:
        super().__init__(image.name, os.getpid())
        self._image = image

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        return self.mounted("rw", ["env", "SYSTEMD_OFFLINE=1", "chroot", "/mnt", *argv])

    def mounted(self, mode: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` of the host with the disk on /mnt; ``mode``: ro or rw."""
        # Process 1 stays outside of the disk's root: what runs there compares that root with its own.
        script = 'mount -o "loop,$1" "$2" /mnt; shift 2; "$@"; exit'
        return [*host.ALONE, "sh", "-ec", script, "sh", mode, str(self._image), *argv]

    def tree(self) -> dict[str, str]:
        """All files, as snapshot.tree describes them."""
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        listing = self.mounted("ro", [sys.executable, "-c", _LIST])
        listed: dict[str, str] = json.loads(host.run(listing, env=environment))
        return listed


def disk(suite: str, packages: Iterable[str] = PACKAGES) -> Disk:
    """The disk of ``images.root(suite, packages)``, made once (a few seconds)."""
    root = images.root(suite, packages)
    folder = images.cache() / "disks" / f"{root.name}-{hashlib.sha256(_MAKE.encode()).hexdigest()[:12]}"
    images.made_once(folder, lambda unfinished: _make(root, unfinished))
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    return Disk(folder / "disk", folder / "vmlinuz", folder / "key", host_key)


def _make(root: Path, folder: Path) -> None:
    for program in ("mke2fs", "ssh-keygen"):
        if not shutil.which(program):
            raise LabError(f"{program} is not installed, so no disk of a VM can be made; apt-get install its package")
    print(f"lab: making a disk of {root.name} (kept in {folder.parent}) ...", flush=True)
    folder.mkdir(mode=0o700)
    host.build(["sh", "-c", _MAKE, "sh", root, folder], folder.with_suffix(".log"), f"make a disk of {root}")
