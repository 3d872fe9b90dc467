# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that tests/installation.py pins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import installation

ROOT = Path(__file__).resolve().parents[2]


def test_renovate_follows_each_pin() -> None:
    pins = {*installation.TOOLS, *installation.SITE, *installation.PROBING, *installation.OLDEST_TOOLS}
    pins |= {installation.COLLECTIONS_FROM}
    pins |= {f"ansible-core=={core}" for core in installation.CORES | installation.NEXT_CORE}
    source = (ROOT / "tests/installation.py").read_text()
    followed = set()
    for manager in json.loads((ROOT / "renovate.json").read_text())["customManagers"]:
        for match in re.finditer(manager["matchStrings"][0].replace("(?<", "(?P<"), source):
            name = match.groupdict().get("depName") or manager["depNameTemplate"]
            followed.add(f"{name}=={match['currentValue']}")
    assert followed == pins
