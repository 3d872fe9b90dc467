# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kube-proxy of ``make upstream``: the program that KUBE_PROXY names, or the release KUBE_PROXY_VERSION, downloaded once."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import urllib.request
from pathlib import Path

import upstream_programs
from installation import NotHere, NotInstalled, say
from leftovers import CACHE

VERSION = "v1.37.2"
_HOST = "https://dl.k8s.io/release"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATIENCE = 30  # seconds for each answer of the server


def program() -> Path:
    """Return the path of kube-proxy. Raise NotHere if there is none, and NotInstalled if it is not what it should be."""
    program_path = upstream_programs.path("KUBE_PROXY", "kube-proxy")
    return program_path or _release(os.environ.get("KUBE_PROXY_VERSION") or VERSION)


def _release(version: str) -> Path:
    target = CACHE / "kube-proxy" / version / "kube-proxy"
    if target.is_file():
        return target
    url = f"{_HOST}/{version}/bin/linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}/kube-proxy"
    say(f"downloading {url}")
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_suffix(f".{os.getpid()}")
    try:
        published = _download(f"{url}.sha256").split()[0].decode()
        written.write_bytes(_download(url))
    except OSError as reason:
        raise NotHere(f"no kube-proxy: KUBE_PROXY is not set, and {url} cannot be downloaded: {reason}") from reason
    verify(written, published)
    written.chmod(0o755)
    shutil.move(written, target)
    return target


def verify(path: Path, published: str) -> None:
    """Remove a file that has not the published SHA-256 checksum, and raise NotInstalled."""
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != published:
        path.unlink()
        raise NotInstalled(f"the download of kube-proxy has the SHA-256 checksum {actual}, and {published} is published")


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:  # https, by _HOST
        content: bytes = answer.read()
    return content
