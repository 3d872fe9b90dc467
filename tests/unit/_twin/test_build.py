# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program says about one line is not said of another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.process import Completed
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import (
    ADDRESS,
    CHAIN,
    LINK,
    Assumption,
    Concern,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import build_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.substitutions import LINE, gap


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


def test_lines_behind_a_word_that_ip_does_not_know_are_lacking() -> None:
    def run(_argv: Sequence[str], _stdin: str | None) -> Completed:
        return Completed(255, "", 'Error: "nexthop" or end of line is expected instead of "protocol"\n')

    notes: list[Assumption] = []
    assert list(build_backend._batch(run, "-4", ["route add 10.1.0.0/16 nexthop dev lo protocol static", "x"], notes)) == []
    (note,) = notes
    assert note.fact == LINE and note.sentence.startswith(
        "The twin lacks some of 2 lines of ip, which ended before the last one: Error"
    )


def test_a_warning_of_iptables_is_not_the_reason_why_another_line_is_refused() -> None:
    said = "Warning: Extension LED revision 0 not supported at line 2\niptables-nft-restore v1: \nline 3: RULE_APPEND failed\n"

    def run(_argv: Sequence[str], stdin: str | None) -> Completed:
        return Completed(4, "", said) if "-A B" in (stdin or "") else Completed(0, "", "")

    notes: list[Assumption] = []
    kept = build_backend._restore(run, "iptables-nft-restore", "*filter\n-A A\n-A B\nCOMMIT\n", notes)
    assert kept == "*filter\n-A A\nCOMMIT\n"
    sentence = "iptables-nft-restore refused a line, which is not in the twin: -A B (line 3: RULE_APPEND failed)."
    assert notes == [gap(sentence, Concern(CHAIN, "ip filter B"))]
