# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of tables in options: the longest and the oddest accepted ones, and refused ones."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_names


@pytest.mark.parametrize(
    "name", ["azureSLBProbe", "kubenodeReturnPath", "Accept", "accept1", "_", "a.b-c", "filter", "a" * 128, "a", "A9_.-"]
)
def test_a_table_may_have_any_free_name(name: str) -> None:
    assert table_names.table("table", name) == name


@pytest.mark.parametrize(
    "name", ["accept", "counter", "ip6", "table", "chain", "gc-interval", "all", "th", "xt", "secmark", "dnat"]
)
def test_a_word_of_nfts_language_is_no_name_for_a_table(name: str) -> None:
    with pytest.raises(Invalid, match=f"^table must be a word that no nft from version .* reserves.*'{name}' was given"):
        table_names.table("table", name)
    # state absent removes a table of an nft that does not reserve the word
    assert table_names.table("table", name, is_new=False) == name


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"', "a\n", "a{", "\u00e4", "a" * 129, ".a", "-a"])
def test_a_table_is_named_by_a_word(name: str) -> None:
    with pytest.raises(
        Invalid, match="^table must be a word of 1 to 128 letters, digits and _.- that starts with a letter or _; .* was given"
    ):
        table_names.table("table", name)
