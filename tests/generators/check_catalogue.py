# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of checks in docs/audit.md, and docs/symptoms.md, from the checks' own documentation. Run by ``make docs``."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import SEVERITIES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, SYMPTOMS = DOCS / "audit.md", DOCS / "symptoms.md"
BEGIN, END = "<!-- catalogue: written by make docs -->\n", "<!-- end of catalogue -->\n"
ENTRY = """
### {check.id}

**{check.severity}.** {check.trouble}

* Evidence: {check.evidence}
* Remedy: {check.remedy}
* Source: <{check.source}>
"""
HEAD = """# Symptoms

What may explain a symptom, with the [check of the audit](audit.md#checks) that proves it on a node.
`kubenode-datapath audit` makes all checks; `--check ID` makes one.

"""


def renewed(page: str) -> str:
    """Return the page with a catalogue of the checks as they are."""
    before, _begin, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}{''.join(map(_entry, catalogue.CHECKS))}\n{END}{after}"


def symptoms_page() -> str:
    """Return the page of symptoms: a list, with a list of checks in each entry, errors first."""
    by_symptom: dict[str, list[Check]] = {}
    for check in sorted(catalogue.CHECKS, key=lambda check: SEVERITIES.index(check.severity)):
        for symptom in check.symptoms:
            by_symptom.setdefault(symptom, []).append(check)
    lines = []
    for symptom, checks in by_symptom.items():
        lines.append(f"- **{symptom}**")
        lines += [f"  - [{check.id}](audit.md#{check.id}): {check.trouble}" for check in checks]
    return "\n".join([f"{HEAD}{BEGIN}", *lines, "", END])


def _entry(check: Check) -> str:
    return ENTRY.format(check=check)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
    SYMPTOMS.write_text(symptoms_page())
