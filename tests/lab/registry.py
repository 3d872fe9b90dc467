# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root folders of other distributions, from images that podman pulls once.

``python -m lab.registry SYSTEM`` pulls the image of a system. There is nothing to pull for a release of Debian.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab import host, image_storage, images


class Distribution(NamedTuple):
    """image: as a registry names it. manager: its package manager. prepare: installs what a node has before Ansible comes."""

    image: str
    manager: str
    prepare: str


_APT = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3 systemd iproute2"
_DNF = "dnf install --assumeyes python3 systemd iproute"
DISTRIBUTIONS = {
    "ubuntu-22.04": Distribution("docker.io/library/ubuntu:22.04", "apt", _APT),
    "ubuntu-24.04": Distribution("docker.io/library/ubuntu:24.04", "apt", _APT),
    "azurelinux-3": Distribution(
        "mcr.microsoft.com/azurelinux/base/core:3.0", "tdnf", "tdnf install --assumeyes python3 systemd iproute"
    ),
    "amazonlinux-2023": Distribution("public.ecr.aws/amazonlinux/amazonlinux:2023", "dnf", _DNF),
    "rockylinux-9": Distribution("docker.io/rockylinux/rockylinux:9", "dnf", _DNF),
    "rockylinux-10": Distribution("docker.io/rockylinux/rockylinux:10", "dnf", _DNF),
}


def root(image: str) -> Path:
    """The root folder of an image, pulled once. Read it; never write into it. Raises LabError if no registry answers."""
    name = image.replace("/", "_").replace(":", "-")
    return images.made_once(images.cache() / "roots" / name, partial(image_storage.extract, image))


def main() -> int:
    for system in sys.argv[1:]:
        if system in DISTRIBUTIONS:
            root(DISTRIBUTIONS[system].image)
    return 0


if __name__ == "__main__":
    host.reported(main)
