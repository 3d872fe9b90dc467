# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that podman builds or pulls, in a storage of the cache."""

from __future__ import annotations

from pathlib import Path

from lab import host, images
from lab.podman import STORAGE


def podman(*arguments: str | Path) -> str:
    """Run podman on the storage, which it sees as /mnt: it refuses longer names for its own run-time files."""
    storage = images.cache() / "agent"
    storage.mkdir(exist_ok=True)
    script = 'mount --bind "$0" /mnt && podman "$@"; exit'
    return host.run([*host.ALONE, "sh", "-c", script, storage, *STORAGE, *arguments])


def extract(image: str, folder: Path) -> None:
    """Write the image's files into a new folder, without those of /dev. An image that is not in the storage is pulled."""
    container = podman("create", image, "/bin/sh").strip()
    archive = folder.with_suffix(".tar")
    try:
        podman("export", f"--output={archive}", container)
    finally:
        podman("rm", container)
    folder.mkdir(parents=True)
    host.run(["tar", "--extract", f"--file={archive}", f"--directory={folder}", "--exclude=dev/*"])
    archive.unlink()
