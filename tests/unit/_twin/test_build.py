# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program says about one line is not said of another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.process import Completed
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import (
    ADDRESS,
    CHAIN,
    LINK,
    PREFIX,
    Assumption,
    Concern,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import build_backend, foreign_tables
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.substitutions import gap


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find", lambda name: f"/usr/sbin/{name}")


def test_a_warning_about_a_line_is_not_the_reason_of_the_next_failure() -> None:
    def run(_argv: Sequence[str], _stdin: str | None) -> Completed:
        return Completed(1, "", "Warning: scope is obsolete.\nCommand failed -:2\n")

    notes: list[Assumption] = []
    build_backend._ip(run, ["address add 10.0.0.1/8 dev a", "address add 10.0.0.2/8 dev b"], notes)
    concerns = Concern(ADDRESS, "10.0.0.2"), Concern(LINK, "b")
    assert notes == [gap("The twin lacks `ip address add 10.0.0.2/8 dev b`: it failed.", *concerns)]


def test_one_line_with_a_word_that_ip_does_not_know_is_lacking() -> None:
    """ip ends there, so the lines behind it are run again; what was run before is there already."""
    rules: list[str] = []
    unknown = "rule add priority 7 from 10.1.0.0/16 lookup word"

    def run(_argv: Sequence[str], stdin: str | None) -> Completed:
        errors: list[str] = []
        for number, line in enumerate((stdin or "").splitlines(), 1):
            if line == unknown:
                return Completed(255, "", "\n".join([*errors, 'Error: argument "word" is wrong: invalid table ID', ""]))
            if line in rules:
                errors += ["RTNETLINK answers: File exists", f"Command failed -:{number}"]
            else:
                rules.append(line)
        return Completed(1 if errors else 0, "", "\n".join([*errors, ""]))

    lines = [f"rule add priority {number} lookup {number}" for number in range(1, 10)]
    notes: list[Assumption] = []
    assert list(build_backend._batch(run, "-4", [*lines[:5], unknown, *lines[5:]], notes)) == [unknown]
    sentence = f'The twin lacks `ip {unknown}`: Error: argument "word" is wrong: invalid table ID.'
    assert rules == lines and notes == [gap(sentence, Concern(PREFIX, "10.1.0.0/16"))]


def test_a_warning_of_iptables_is_not_the_reason_why_another_line_is_refused() -> None:
    said = "Warning: Extension LED revision 0 not supported at line 2\niptables-nft-restore v1: \nline 3: RULE_APPEND failed\n"

    def run(_argv: Sequence[str], stdin: str | None) -> Completed:
        return Completed(4, "", said) if "-A B" in (stdin or "") else Completed(0, "", "")

    notes: list[Assumption] = []
    kept = build_backend._restore(run, "iptables-nft-restore", "*filter\n-A A\n-A B\nCOMMIT\n", notes)
    assert kept == "*filter\n-A A\nCOMMIT\n"
    sentence = "iptables-nft-restore refused a line, which is not in the twin: -A B (line 3: RULE_APPEND failed)."
    assert notes == [gap(sentence, Concern(CHAIN, "ip filter B"))]


def test_an_object_that_nft_refuses_is_lacking_with_what_is_within_it() -> None:
    chains = [{"chain": {"family": "inet", "table": "t", "name": name}} for name in ("a", "bad", "c")]
    rules: list[dict[str, Any]] = [
        {"rule": {"family": "inet", "table": "t", "chain": name, "expr": []}} for name in ("a", "bad", "c")
    ]
    loaded: list[Any] = []

    def run(argv: Sequence[str], stdin: str | None) -> Completed:
        objects = json.loads(stdin or "")["nftables"]
        if chains[1] in objects:
            return Completed(1, "", "internal:0:0-0: Error: Missing `device' in this chain definition\n")
        loaded[:] = loaded if "--check" in argv else objects
        return Completed(0, "", "")

    notes: list[Assumption] = []
    table = {"table": {"family": "inet", "name": "t"}}
    build_backend._load_objects(run, [table, *chains, *rules], notes)
    assert loaded == [table, chains[0], chains[2], rules[0], rules[2]]
    (note,) = notes
    assert "'bad'" in note.sentence and "Missing `device'" in note.sentence


def test_a_chain_of_links_has_those_that_a_twin_has() -> None:
    def chain(name: str, *links: str) -> dict[str, Any]:
        body = {"family": "netdev", "table": "t", "name": name, "hook": "ingress", "prio": 0}
        return {"chain": {**body, "dev": [*links]}}

    objects = [chain("one", "eth0", "gone"), chain("any", "eth*"), chain("none", "gone"), chain("open")]
    rules: list[dict[str, Any]] = [
        {"rule": {"family": "netdev", "table": "t", "chain": name, "expr": []}} for name in ("one", "none")
    ]
    notes: list[Assumption] = []
    remaining = foreign_tables.of_links([*objects, *rules], ["lo", "eth0", "eth1"], notes)
    assert [entry["chain"]["dev"] for entry in remaining if "chain" in entry] == ["eth0", ["eth0", "eth1"]]
    assert [entry["rule"]["chain"] for entry in remaining if "rule" in entry] == ["one"]
    assert [note.sentence for note in notes] == ["Chain netdev t open is not in the twin: its links are not known."]
