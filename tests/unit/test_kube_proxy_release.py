# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only a kube-proxy that is named, or whose checksum is the published one, is run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import installation
import kube_proxy_release as release
import pytest

PROGRAM = b"a program"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use a cache of the test's own, and files in place of the server of releases."""
    monkeypatch.delenv("KUBE_PROXY", raising=False)
    monkeypatch.setenv("KUBE_PROXY_VERSION", "v1.36.2")
    monkeypatch.setattr(release, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(release, "_HOST", tmp_path.as_uri())
    return tmp_path


def publish(folder: Path, checksum: str) -> None:
    for architecture in ("amd64", "arm64"):
        place = folder / "v1.36.2/bin/linux" / architecture
        place.mkdir(parents=True)
        (place / "kube-proxy").write_bytes(PROGRAM)
        (place / "kube-proxy.sha256").write_text(f"{checksum}\n")


def test_a_release_with_its_published_checksum_is_kept(elsewhere: Path) -> None:
    publish(elsewhere, hashlib.sha256(PROGRAM).hexdigest())
    program = release.program()
    assert program.read_bytes() == PROGRAM and program.stat().st_mode & 0o111
    assert program.is_relative_to(elsewhere / "cache") and release.program() == program


def test_a_release_with_another_checksum_is_refused_and_not_kept(elsewhere: Path) -> None:
    publish(elsewhere, "0" * 64)
    with pytest.raises(installation.NotInstalled, match="0{64} is published"):
        release.program()
    assert not [path for path in (elsewhere / "cache").rglob("*") if path.is_file()]


def test_without_a_program_and_without_a_server_nothing_is_run() -> None:
    with pytest.raises(installation.NotHere, match="KUBE_PROXY is not set"):
        release.program()


def test_a_named_program_must_be_one(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_PROXY", str(elsewhere))
    with pytest.raises(installation.NotInstalled, match="which is no program"):
        release.program()
    monkeypatch.setenv("KUBE_PROXY", "/bin/true")
    assert release.program() == Path("/bin/true")
