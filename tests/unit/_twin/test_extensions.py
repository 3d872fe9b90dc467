# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A twin has the files of the matches and targets that a rule may name, and no others."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_options import EBTABLES
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.rule_words import IPTABLES
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.isolation_backend import is_permitted


def test_what_a_rule_may_name_has_its_file() -> None:
    for language, prefix in ((IPTABLES, "libxt_"), (EBTABLES, "libebt_")):
        assert all(is_permitted(f"{prefix}{name}.so") for name in (*language.matches, *language.targets))


@pytest.mark.parametrize(
    "file", ["libxt_standard.so", "libxt_NAT.so", "libip6t_REJECT.so", "libipt_icmp.so.1", "libebt_mark_m.so"]
)
def test_rules_find_the_code_that_they_share(file: str) -> None:
    assert is_permitted(file)


@pytest.mark.parametrize(
    "file",
    [
        *("libxt_IDLETIMER.so", "libxt_LED.so", "libxt_AUDIT.so", "libxt_SECMARK.so", "libxt_SYSRQ.so", "libxt_rateest.so"),
        *(
            "libipt_CLUSTERIP.so",
            "libarpt_mangle.so",
            "libfoo_comment.so",
            "comment.so",
            "libxt_.so",
            "libxt_comment2.so",
            "tcp",
            "",
        ),
    ],
)
def test_no_other_file_is_in_a_twin(file: str) -> None:
    assert not is_permitted(file)
