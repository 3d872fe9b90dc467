# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package of nft and the table of the next boot in an image of a distribution, with its own repositories.

Ansible enters the root by chroot: no systemd runs, and no table is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import images, registry
from lab.build import Build
from lab.chroot import ImagePlay

TABLE = "/etc/kubenode/probe-snat.nft"
UNIT = "/etc/systemd/system/kubenode-nft-ip6-azureSLBProbe.service"
NOTES = (
    *("/dev", "/root", "/run", "/tmp", "/var/cache", "/var/log"),
    *("/var/lib/dnf", "/var/lib/rpm", "/var/lib/tdnf", "/usr/lib/sysimage"),
)
"""Folders of a package manager's own notes, which a query may write."""


class Image:
    """A root, before nftables is installed in it; ``manager`` is its package manager."""

    def __init__(self, build: Build, manager: str, folder: Path) -> None:
        self.build, self.manager = build, manager
        self._folder, self._runs = folder, 0

    def attempt(self, module: str, *arguments: str, **options: Any) -> dict[str, Any]:
        """The module's result, with ``failed``."""
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        record = folder / "record"
        environment = {"ANSIBLE_CALLBACKS_ENABLED": "lab_record", "LAB_RECORD": str(record)}
        play = ImagePlay(self.build, folder, {"tasks": [{f"kubenode.datapath.{module}": options}]})
        played = play.run("--diff", *arguments, environment=environment)
        assert record.exists(), played.output
        (result,) = json.loads(record.read_text())["results"]
        return {**result["result"], "failed": result["failed"]}

    def run(self, module: str, *arguments: str, **options: Any) -> dict[str, Any]:
        result = self.attempt(module, *arguments, **options)
        assert not result["failed"], result
        return result

    def four_steps(self, module: str, **options: Any) -> dict[str, Any]:
        """Check, run, check again, run again; return the result of the first run."""
        before = self.files()
        predicted = self.run(module, "--check", **options)
        assert predicted["changed"] and self.files() == before
        result = self.run(module, **options)
        assert result["changed"]
        after = self.files()
        assert not self.run(module, "--check", **options)["changed"] and not self.run(module, **options)["changed"]
        assert self.files() == after
        return result

    def files(self) -> dict[str, str]:
        return {path: entry for path, entry in self.build.tree().items() if not path.startswith(NOTES)}

    def prints(self, *command: str) -> str:
        return self.build.run(command).stdout


@pytest.fixture
def image(system: str, tmp_path: Path) -> Image:
    distribution = registry.DISTRIBUTIONS.get(system)
    below = registry.root(distribution.image) if distribution else images.root(system, images.NODE_PACKAGES)
    build = Build(below, tmp_path / "image")
    build.remove("/etc/resolv.conf")
    build.write("/etc/resolv.conf", Path("/etc/resolv.conf").read_text())
    if distribution:
        build.run(["sh", "-c", distribution.prepare])
    else:
        build.write("/etc/apt/sources.list", "\n".join([*images.sources(system), ""]))
    return Image(build, distribution.manager if distribution else "apt", tmp_path)


def test_the_package_comes_from_the_distributions_repositories_and_goes_with_absent(image: Image) -> None:
    refused = image.attempt("nftables_package", minimum_version="99")
    assert refused["failed"] and "99" in refused["msg"]
    result = image.four_steps("nftables_package", service="masked")
    assert result["manager"] == image.manager and result["service"]["masked"]
    assert result["version"] in image.prints(result["path"], "--version")
    installed = image.files()
    image.four_steps("nftables_probe_snat", immediate=False)
    assert "fe80::1234:5678:9abc" in image.prints("cat", TABLE)
    image.prints("unshare", "--net", result["path"], "--check", "--file", TABLE)
    assert UNIT in image.files() and any(path.endswith(f".wants/{Path(UNIT).name}") for path in image.files())
    image.four_steps("nftables_probe_snat", state="absent", immediate=False)
    assert image.files() == installed
    assert image.four_steps("nftables_package", state="absent")["path"] is None
    assert image.build.run(["sh", "-c", "command -v nft || true"]).stdout == ""
