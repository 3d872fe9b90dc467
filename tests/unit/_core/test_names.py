# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in options: the longest and the oddest accepted ones, and refused ones."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid


@pytest.mark.parametrize("name", ["azureSLBProbe", "kubenodeReturnPath", "Accept", "accept1", "_", "a.b-c", "filter", "a" * 128])
def test_a_table_may_have_any_free_name(name: str) -> None:
    assert names.table("table", name) == name


@pytest.mark.parametrize(
    "name", ["accept", "counter", "ip6", "table", "chain", "gc-interval", "all", "th", "xt", "secmark", "dnat"]
)
def test_a_word_of_nfts_language_is_no_name_for_a_table(name: str) -> None:
    with pytest.raises(Invalid, match=f"^table must be a word that no nft from version .* reserves.*'{name}' was given"):
        names.table("table", name)
    assert names.table("table", name, is_new=False) == name  # absent removes a table of an nft that does not reserve the word


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"', "a\n", "a{", "\u00e4", "a" * 129, ".a", "-a"])
def test_a_table_is_named_by_a_word(name: str) -> None:
    with pytest.raises(Invalid, match="table must be a word of 1 to 128"):
        names.table("table", name)


Check = t.Callable[[str, str], str]

TAKEN: list[tuple[Check, str]] = [
    *((names.interface, name) for name in ("eth0", "eth0.100", "a", "a" * 15, "_.=+@~-", "...", "Z9")),
    *((names.network_interface, name) for name in ("eth0", "eth0.100", "lo0", "all0")),
    *((names.pattern, name) for name in ("eth0", "eni*", "e*", "a" * 14 + "*", "a" * 15)),
    *((names.table, name) for name in ("a", "_", "A9_.-", "a" * 128)),
    *((names.path, path) for path in ("/a", "/etc/kubenode/x.nft", "/a.=+@~:,-/Z9", "/a/" + "b" * 200, "/.a/b", "/a./b")),
]


@pytest.mark.parametrize(("check", "given"), TAKEN)
def test_what_is_taken_stays_as_it_was_given(check: Check, given: str) -> None:
    assert check("option", given) == given


A_LINK = "a link's name of 1 to 15 letters, digits and _.=+@~-"
A_NETWORK_INTERFACE = "the name of one network interface that leads to other machines, as eth0"
A_TABLE = "a word of 1 to 128 letters, digits and _.- that starts with a letter or _"
A_PATH = (
    "an absolute path of a file, of letters, digits and _.=+@~:,- without . and .. in it, each name of 200 characters at"
    " most, the last not starting with a dot"
)
REFUSED: list[tuple[Check, str, str]] = [
    *((names.interface, name, A_LINK) for name in ("", ".", "..", "a" * 16, "a/b", "a b", "a:b", "ä", "eni*", "a\n")),
    *((names.network_interface, name, A_NETWORK_INTERFACE) for name in ("all", "default", "lo")),
    *((names.network_interface, name, A_LINK) for name in ("", "eni*")),
    *((names.pattern, name, A_LINK) for name in ("", "*", "a" * 15 + "*", "e*i", "*a", "a b", "..")),
    *((names.table, name, A_TABLE) for name in ("", "1a", "-a", "a b", "a" * 129, "ä", "a\n")),
    *((names.path, path, A_PATH) for path in ("", "a", "a/b", "/", "/a/", "//a", "/a//b", "/a b", "/a\n", "/ä", "/a%b", "/$a")),
    *(
        (names.path, path, A_PATH)
        for path in ("/a/./b", "/a/../b", "/a/..", "/.a", "/a/.b", "/" + "b" * 201, "/" + "b" * 201 + "/c")
    ),
]


@pytest.mark.parametrize(("check", "given", "allowed"), REFUSED)
def test_what_is_refused_is_told_what_would_have_been_right(check: Check, given: str, allowed: str) -> None:
    with pytest.raises(Invalid) as caught:
        check("option", given)
    assert str(caught.value) == f"option must be {allowed}; {given!r} was given" and caught.value.option == "option"


def test_a_pattern_names_what_it_would_be_without_its_star() -> None:
    with pytest.raises(Invalid, match="'a b' was given"):
        names.pattern("option", "a b*")


@pytest.mark.parametrize("path", ["/run", "/run/x", "/run/kubenode/x", "/var/run", "/var/run/x"])
def test_what_lies_in_run_is_gone_after_a_boot(path: str) -> None:
    assert names.is_in_run(path)


@pytest.mark.parametrize("path", ["/", "/etc/run", "/runner/x", "/var/runner", "/var/lib/run/x", "/etc/x"])
def test_what_lies_elsewhere_is_not(path: str) -> None:
    assert not names.is_in_run(path)
