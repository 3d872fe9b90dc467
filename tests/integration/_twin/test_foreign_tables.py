# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign tables that were read word for word load to the same rules as the outputs themselves."""

from __future__ import annotations

import re
import subprocess

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_options import EBTABLES
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import ipset_text, restore_text, rule_options
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import nft_listing
from unit.foreign_tables import BRIDGED, KUBE_PROXY, OTHERS, SAVED, SETS

CILIUM = "create cilium_node_set_v4 hash:ip\nadd cilium_node_set_v4 10.0.0.1\n"
TEXTS = {
    "kube-proxy": ("nft -f -", KUBE_PROXY, nft_listing.read(KUBE_PROXY).text, "nft -s list ruleset"),
    "others": ("nft -f -", OTHERS.replace("    flags owner,persist\n", ""), nft_listing.read(OTHERS).text, "nft -s list ruleset"),
    "iptables": ("iptables-nft-restore", SAVED, restore_text.read(SAVED).text, "iptables-nft-save"),
    "ebtables": ("ebtables-nft-restore", BRIDGED, restore_text.read(BRIDGED, EBTABLES).text, "ebtables-nft-save"),
    "ipset": ("ipset restore", SETS, "\n".join([*map(ipset_text.render, ipset_text.read(SETS)[0]), ""]), "ipset save"),
}


def loaded(load: str, text: str, show: str) -> list[str]:
    """What a new network namespace lists after it has loaded a text."""
    script = f"ipset restore <<'END'\n{CILIUM}END\n{load} <<'END' || exit 1\n{text}END\n{show}"
    completed = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    lines = [line for line in completed.stdout.splitlines() if not line.startswith("#")]
    return [re.sub(r" initval \S+", "", line) for line in lines]  # a random number


@pytest.mark.parametrize("name", TEXTS)
def test_a_listing_that_was_read_loads_as_the_listing_itself(name: str) -> None:
    load, given, read, show = TEXTS[name]
    expected = loaded(load, given, show)
    assert loaded(load, read, show) == expected and len(expected) > 5


OPTIONS = {
    (kind, name, option): values
    for kind, extensions in (("-m", rule_options.MATCHES), ("-j", rule_options.TARGETS))
    for name, options in extensions.items()
    for option, values in options.items()
}


def test_options_have_as_many_values_as_iptables_takes() -> None:
    """If iptables took fewer, it would read a value as an option."""
    commands = [f"{tool}-nft -A INPUT {' '.join(words)}" for words in OPTIONS for tool in ("iptables", "ip6tables")]
    script = "\n".join(f"echo '= {command}'\n{command}" for command in commands)
    result = subprocess.run(["unshare", "-n", "sh"], input=script, stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
    answers = dict(answer.split("\n", 1) for answer in result.stdout.split("= ")[1:])
    for words, values in OPTIONS.items():
        told = " ".join(answers[f"{tool}-nft -A INPUT {' '.join(words)}"] for tool in ("iptables", "ip6tables"))
        assert ("requires an argument" in told) == (values > 0), (words, told)
        assert told.count("unknown option") < 2, (words, told)
