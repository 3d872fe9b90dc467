# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer of nft is understood, or is an error: it is never taken for a missing or a different table."""

from __future__ import annotations

import errno
import json
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import nfnetlink
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_table
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_backend import Nft
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.table_resource import LiveTable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel, process
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.process import Completed
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_table import ProbeSnat

TABLE = {"table": {"family": "ip6", "name": "mine", "handle": 1}}
CHAIN = {"chain": {"family": "ip6", "table": "mine", "name": "a", "handle": 1}}


@pytest.fixture(autouse=True)
def _with_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "is_ready", lambda _module: True)
    monkeypatch.setattr(process, "find", lambda program: f"/usr/sbin/{program}")


def read(json_listing: Completed, text_listing: Completed | None = None) -> nft_table.Table | None:
    def run(argv: t.Sequence[str], stdin: str | None = None) -> Completed:
        return json_listing if "-j" in argv else (text_listing or json_listing)

    return Nft(run, pytest.fail).read("ip6", "mine")


def listed(*objects: t.Any) -> str:
    return json.dumps({"nftables": objects})


UNREADABLE = {
    "nothing": "",
    "a blank line": "\n",
    "words": "nftables v1.0.6",
    "half of a listing": listed(TABLE, CHAIN)[:-9],
    "a list": "[]",
    "an object": "{}",
    "a number for all": '{"nftables": 1}',
    "numbers": listed(1, 2),
    "a number for a table": listed({"table": 1}),
    "no table": listed(CHAIN),
    "two tables": listed(TABLE, TABLE),
    "another table": listed({"table": {"family": "ip6", "name": "other"}}),
    "another family": listed({"table": {"family": "ip", "name": "mine"}}),
    "a number for a chain": listed(TABLE, {"chain": 1}),
    "a chain without a name": listed(TABLE, {"chain": {}}),
    "a list for a chain's name": listed(TABLE, {"chain": {"name": []}}),
    "a priority that is no number": listed(TABLE, {"chain": {"name": "a", "prio": "early"}}),
    "a rule without a chain": listed(TABLE, {"rule": {"expr": []}}),
    "a number for a rule's expressions": listed(TABLE, CHAIN, {"rule": {"chain": "a", "expr": 1}}),
    "brackets": "[" * 100_000,
}


@pytest.mark.parametrize("listing", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_listing_that_cannot_be_parsed_is_an_error_and_no_difference(listing: str) -> None:
    unparsed = r"cannot parse what .* lists for table ip6 mine: .* found .*or install nftables again"
    with pytest.raises(Failure, match=rf"{unparsed}|table ip6 mine.*no error message"):
        read(Completed(0, listing, ""))


class Kernel:
    """The kernel's tables, by its netfilter socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *tables: str) -> None:
        self.tables = set(tables)
        monkeypatch.setattr(nfnetlink, "has_table", lambda family, name: name in self.tables)
        monkeypatch.setattr(nfnetlink, "delete_table", lambda family, name: self.tables.remove(name))


@pytest.mark.parametrize(
    "answer",
    [*(Completed(0, listing, "") for listing in UNREADABLE.values()), Completed(-11, "", ""), Completed(1, "", "No")],
    ids=[*UNREADABLE.keys(), "died", "an error"],
)
def test_a_table_goes_although_nft_cannot_read_it(monkeypatch: pytest.MonkeyPatch, answer: Completed) -> None:
    found, warnings = Kernel(monkeypatch, "mine", "other"), list[str]()
    live = LiveTable(Nft(lambda argv, stdin: answer, warnings.append), "ip6", "mine", None)
    assert converge([live], {Plane.IMMEDIATE}, check=True).changed and found.tables == {"mine", "other"}
    assert converge([live], {Plane.IMMEDIATE}).changed and found.tables == {"other"}
    assert (
        {*warnings} == {warnings[0]} and "table ip6 mine" in warnings[0] and "undoing this run cannot restore it" in warnings[0]
    )
    warnings.clear()
    assert not converge([live], {Plane.IMMEDIATE}).changed and not warnings


def test_a_table_that_cannot_be_asked_for_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root, the kernel does not say whether there is a table."""
    for answer, expected in ((0, True), (errno.ENOENT, False)):
        monkeypatch.setattr(nfnetlink, "_ask", lambda messages, code=answer: code)
        assert nfnetlink.has_table("ip6", "mine") is expected
    monkeypatch.setattr(nfnetlink, "_ask", lambda messages: errno.EPERM)
    with pytest.raises(Failure, match="whether there is a table ip6 mine: Operation not permitted"):
        nfnetlink.has_table("ip6", "mine")


def test_a_flagged_table_is_known_by_its_text_where_its_json_ends_in_stray_memory() -> None:
    listing, text = (
        Completed(0, '{"nftables": [{"table": {"flags": "\x7f', ""),
        "table ip6 mine {{\n\tflags dormant\n{}}}\n",
    )
    assert read(listing, Completed(0, text.format(""), "")) == nft_table.Table(
        "ip6", "mine", frozenset(), frozenset({nft_table.FLAGGED})
    )
    for other in ("table ip6 mine {\n\tchain flags {\n\t}\n}\n", text.format("").replace("mine", "other")):
        with pytest.raises(Failure, match="cannot parse what"):
            read(listing, Completed(0, other, ""))


MISSING = "Error: No such file or directory"


@pytest.mark.parametrize("hint", ["", "; did you mean table 'mime' in family ip6?"])
def test_only_nfts_own_words_say_that_there_is_no_table(hint: str) -> None:
    assert read(Completed(1, "", f"{MISSING}{hint}\nlist table ip6 mine\n               ^^^^\n")) is None
    loader = "nft: error while loading shared libraries: libnftables.so.1: cannot open shared object file"
    with pytest.raises(Failure, match="nft could not list table ip6 mine: .*libnftables.so.1"):
        read(Completed(127, "", f"{loader}: No such file or directory\n"))


ODD_STATEMENTS: list[t.Any] = [
    1,
    "accept",
    [],
    {},
    {"accept": None, "drop": None},
    {"match": 1},
    {"match": {"op": "=="}},
    {"match": {"op": [], "left": {"&": 1}, "right": 1}},
    {"mangle": {}},
]


@pytest.mark.parametrize("statement", ODD_STATEMENTS, ids=json.dumps)
def test_a_statement_of_another_shape_is_foreign(statement: t.Any) -> None:
    rule = {"rule": {"chain": "a", "expr": [{"accept": None}, statement]}}
    found = read(Completed(0, listed(TABLE, CHAIN, rule), ""))
    assert found is not None
    ((accept, odd),) = next(iter(found.chains)).rules
    assert accept == nft_table.Verdict("accept") and isinstance(odd, nft_table.Foreign)


# A node without nft


def survey(desired: nft_table.Table | None, monkeypatch: pytest.MonkeyPatch, check: bool) -> tuple[list[str], list[str]]:
    """The warnings of a run, and its error."""

    def run(argv: t.Sequence[str], stdin: str | None = None) -> Completed:
        raise AssertionError(argv)

    monkeypatch.setattr(process, "find", lambda _program: None)
    monkeypatch.setattr(kernel, "is_ready", lambda _module: False)
    warnings: list[str] = []
    live = LiveTable(Nft(run, warnings.append), "ip6", "azureSLBProbe", desired)
    try:
        converge([live], {Plane.IMMEDIATE}, check=check)
    except Failure as failure:
        return warnings, [str(failure)]
    return warnings, []


def test_without_nft_check_mode_says_that_a_run_fails_and_the_run_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings, errors = survey(ProbeSnat().table(), monkeypatch, check=True)
    assert not errors and all("a run fails before it changes anything. Install nft first" in one for one in warnings) and warnings
    _warnings, (error,) = survey(ProbeSnat().table(), monkeypatch, check=False)
    assert "nft is not installed" in error and "Nothing was changed" in error
    assert survey(None, monkeypatch, check=False) == ([], [])  # nft is not needed to remove a table
