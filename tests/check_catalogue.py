# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of checks in docs/audit.md, from the checks' own documentation. Run by ``make docs``."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check

PAGE = Path(__file__).resolve().parent.parent / "docs/audit.md"
BEGIN, END = "<!-- catalogue: written by make docs -->\n", "<!-- end of catalogue -->\n"
ENTRY = """
### {check.id}

**{check.severity}.** {check.trouble}

* Evidence: {check.evidence}
* Remedy: {check.remedy}
* Source: <{check.source}>
"""


def renewed(page: str) -> str:
    """Return the page with a catalogue of the checks as they are."""
    before, _begin, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}{''.join(map(_entry, catalogue.CHECKS))}\n{END}{after}"


def _entry(check: Check) -> str:
    return ENTRY.format(check=check)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
