# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder with the sites of all versions."""

from __future__ import annotations

import re
from pathlib import Path

from publishing import site_versions


def test_each_version_keeps_its_site_and_the_newest_release_is_the_front(tmp_path: Path) -> None:
    for version in ("v1.9.0", "main", "v1.10.0", "v1.2.3", "v1.9.0"):
        site = tmp_path / "html"
        site.mkdir(exist_ok=True)
        (site / "index.html").write_text(version)
        site_versions.add(tmp_path / "pages", site, version)
    pages = tmp_path / "pages"
    assert (pages / "v1.9.0/index.html").read_text() == "v1.9.0"
    assert 'url=v1.10.0/"' in (pages / "index.html").read_text()
    listed = re.findall(r'href="(.*)/"', (pages / "versions.html").read_text())
    assert listed == ["v1.10.0", "v1.9.0", "v1.2.3", "main"]


def test_before_the_first_release_the_front_is_the_main_branch(tmp_path: Path) -> None:
    (tmp_path / "html").mkdir()
    site_versions.add(tmp_path / "pages", tmp_path / "html", site_versions.NEXT)
    assert 'url=main/"' in (tmp_path / "pages/index.html").read_text()


def test_a_page_that_a_version_no_longer_has_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    (old / "gone.html").touch()
    for site in (old, new):
        site_versions.add(tmp_path / "pages", site, site_versions.NEXT)
    assert not (tmp_path / "pages/main/gone.html").exists()
