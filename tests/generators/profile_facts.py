# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of docs/which-profile.md, from docs/facts.yml, whose head explains its keys. Run by ``make docs``."""

from __future__ import annotations

import datetime
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

NAME = "docs/facts.yml"
CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs/which-profile.md"
BEGIN, END = "<!-- facts: {} -->\n", "<!-- end of facts -->\n"
HEAD = "| cluster | profile | what is known, with versions and reports |\n|---|---|---|\n"
OLDEST = datetime.timedelta(days=120)  # of an entry in a release
STATES = ("open", "closed", "merged", "read")
SHORT = {
    "amazon-vpc-cni-k8s": "aws",
    "azure-container-networking": "ACN",
    "cluster-cloud-controller-manager-operator": "CCMO",
    "init": "Flatcar",
    "karpenter-provider-azure": "karpenter",
}
THREAD = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(issues|pull)/(\d+)\b")
FILE = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)(?:/(?:blob|tree)/.*/([^/]+))?")
Fact = Mapping[str, Any]
Tables = Mapping[str, list[dict[str, Any]]]


def read(checkout: Path = CHECKOUT) -> Tables:
    tables: Tables = yaml.safe_load((checkout / NAME).read_text(encoding="utf-8"))
    return tables


def facts(tables: Tables) -> Iterator[Fact]:
    for rows in tables.values():
        for row in rows:
            yield from row["facts"]


def references(fact: Fact) -> list[tuple[str, str]]:
    """Return the states and addresses of what an entry cites."""
    return [(state, url) for state, _blank, url in (line.partition(" ") for line in fact["references"])]


def mistakes(tables: Tables, cited: Iterable[str] = ()) -> Iterator[str]:
    """Yield a sentence for each entry that cites nothing, and for each subject or citation that is stated in two ways.

    cited: texts that cite threads of GitHub, too.
    """
    subjects: set[str] = set()
    states: dict[str, str] = {}
    for fact in facts(tables):
        subject = fact["subject"]
        if subject.casefold() in subjects:
            yield f"two entries state {subject}"
        subjects.add(subject.casefold())
        if not fact["references"]:
            yield f"{subject} has no reference"
        for state, url in references(fact):
            if state not in STATES:
                yield f"{subject}: {state} of {url} is none of {', '.join(STATES)}"
            if states.setdefault(url, state) != state:
                yield f"{subject}: {url} is {state}, and {states[url]} in another entry"
    kinds: dict[tuple[str, str], str] = {}
    for repository, kind, number in THREAD.findall("\n".join([*states, *cited])):
        if kinds.setdefault((repository, number), kind) != kind:
            yield f"{repository} {number} is cited as an issue and as a pull request"


def overdue(tables: Tables, day: datetime.date) -> list[str]:
    """Return the subjects that were last checked too long before a day for a release."""
    return [fact["subject"] for fact in facts(tables) if day - fact["checked"] > OLDEST]


def renewed(page: str, tables: Tables) -> str:
    """Return the page with its tables as the entries have them."""
    for name, rows in tables.items():
        before, begin, rest = page.partition(BEGIN.format(name))
        page = f"{before}{begin}\n{HEAD}{''.join(map(_row, rows))}\n{END}{rest.partition(END)[2]}"
    return page


def _row(row: Mapping[str, Any]) -> str:
    return f"| {row['cluster']} | {row['profile']} | {' '.join(map(_sentence, row['facts']))} |\n"


def _sentence(fact: Fact) -> str:
    cited = ", ".join(f"[{_label(url)}]({url}){', open' * (state == 'open')}" for state, url in references(fact))
    doubt = f"not reproduced: {fact['unreproduced']}" if "unreproduced" in fact else ""
    return f"{fact['claim']} ({'; '.join(filter(None, (_versions(fact), cited, doubt)))})."


def _versions(fact: Fact) -> str:
    first, last = fact.get("first"), fact.get("last")
    if first == "unreleased":
        return f"in no release by {fact['checked']:%B %Y}"
    return " ".join([*[f"since {first}"] * bool(first), *[f"up to {last}"] * bool(last)])


def _label(url: str) -> str:
    thread, file = THREAD.fullmatch(url), FILE.fullmatch(url)
    if thread:
        name = thread[1].partition("/")[2]
        return f"{SHORT.get(name, name)} {thread[3]}"
    if file:
        return " ".join(urllib.parse.unquote(SHORT.get(part, part)) for part in file.groups() if part)
    return url.split("/")[2]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(), read()))
