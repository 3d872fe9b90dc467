# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sites of all versions in one folder: a site for each release and for the main branch, and a list of them.

site_versions.py FOLDER HTML VERSION    put the site HTML into FOLDER as that of VERSION, in place of the one that is there
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path

NEXT = "main"
RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
LIST = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>kubenode.datapath: versions</title>
<style>body {{ max-width: 40em; margin: 3em auto; padding: 0 1em; font-family: system-ui, sans-serif; line-height: 1.6 }}</style>
<h1>Versions of kubenode.datapath</h1>
<ul>
{entries}
</ul>
"""
FRONT = """<!DOCTYPE html>
<meta charset="utf-8">
<title>kubenode.datapath</title>
<meta http-equiv="refresh" content="0; url={version}/">
<a href="{version}/">kubenode.datapath {version}</a>
"""


def add(folder: Path, site: Path, version: str) -> None:
    """Put a site into the folder as that of a version, and renew the list and the front page."""
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    (folder / ".nojekyll").touch()  # GitHub Pages would leave out folders such as _static
    versions = ordered([path.name for path in folder.iterdir() if path.is_dir()])
    entries = [f'<li><a href="{name}/">{html.escape(name)}</a></li>' for name in versions]
    (folder / "versions.html").write_text(LIST.format(entries="\n".join(entries)))
    (folder / "index.html").write_text(FRONT.format(version=versions[0]))


def ordered(names: list[str]) -> list[str]:
    """Return the versions among the names of folders: releases, the newest first, and then the main branch."""
    numbers = {name: tuple(map(int, match.groups())) for name in names if (match := RELEASE.fullmatch(name))}
    releases = sorted(numbers, key=lambda name: numbers[name], reverse=True)
    return [*releases, *[NEXT] * (NEXT in names)]


if __name__ == "__main__":
    add(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
