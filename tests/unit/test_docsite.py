# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site; `make docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_list_of_guides_for_the_ansible_documentation_names_each_guide() -> None:
    named = re.findall(r"/docs/([\w-]+\.md)>", (DOCS / "docsite/rst/guides.rst").read_text())
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.md"))
