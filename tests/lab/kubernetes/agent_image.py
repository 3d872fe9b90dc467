# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of the collection's DaemonSet, built from its Containerfile as a user does, on the lab's own Debian root."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lab import collection, host, image_storage, images
from lab.podman import BUILD

SUITE = "trixie"
NAME = "localhost/kubenode-agent"
BASE = "localhost/lab/debian:trixie"
CONTEXT = collection.CHECKOUT / "deploy/image"


def build(version: str, *options: str) -> str:
    """Builds the image with the collection of this checkout; returns its name.

    version: the tag. options: of podman build.
    """
    root = images.root(SUITE, ("ca-certificates",))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context = folder / "context"
        collection_version = write_context(context)
        (folder / "sources.list").write_text("\n".join(images.sources(SUITE)) + "\n")
        host.run(["tar", "--create", f"--file={folder / 'base.tar'}", f"--directory={root}", "."])
        image_storage.podman("import", folder / "base.tar", f"{BASE}-plain")
        (folder / "Containerfile").write_text(f"FROM {BASE}-plain\nCOPY sources.list /etc/apt/sources.list\n")
        _podman_build(folder, BASE)
        _podman_build(
            context,
            f"{NAME}:{version}",
            f"--build-arg=BASE={BASE}",
            f"--build-arg=VERSION={collection_version}",
            "--timestamp=0",
            *options,
            "--squash-all",  # a file of the base that a layer removes would be a device, which a node of the lab may not make
        )
    return f"{NAME}:{version}"


def write_context(folder: Path) -> str:
    """Write the folder that the image is built from, with the collection of this checkout; return the collection's version."""
    shutil.copytree(CONTEXT, folder)
    return collection.build(folder).name.removesuffix(".tar.gz").rpartition("-")[2]


def layers(image: str) -> str:
    """The digests of the image's layers."""
    return image_storage.podman("image", "inspect", "--format={{.RootFS.Layers}}", image)


def save(image: str, path: Path) -> None:
    """Writes an archive of the image, for ``ctr images import``."""
    path.unlink(missing_ok=True)
    image_storage.podman("save", "--format=docker-archive", f"--output={path}", image)


def retag(image: str, version: str) -> str:
    """The same image under another tag."""
    name = f"{image.rpartition(':')[0]}:{version}"
    image_storage.podman("tag", image, name)
    return name


def _podman_build(context: Path, name: str, *options: str) -> None:
    image_storage.podman(*BUILD, *options, f"--tag={name}", context)
