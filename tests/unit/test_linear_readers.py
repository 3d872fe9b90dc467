# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of a reader of text that another program wrote grows with the text, and not with its square."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import metadata
from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cilium, cni
from ansible_collections.kubenode.datapath.plugins.module_utils._commands import command
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import uplinks_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables import ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import address_unit, link_address
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import ipset_text, iptables, restore_text
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons import known_daemons
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import rt_names
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_listing, nft_text
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import firewalls, saved

ADDRESSES = ("10.9.2.7",)
READERS: dict[str, Callable[[str], object]] = {
    "networkd's lease": lambda text: uplinks_backend.networkd(text, ADDRESSES),
    "dhclient's leases": lambda text: uplinks_backend.dhclient(text, "eth1", ADDRESSES),
    "networkd's file": uplinks_backend.network_file,
    "NetworkManager's keyfile": lambda text: uplinks_backend.keyfile(text, "eth1", ADDRESSES),
    "cloud-init's file": lambda text: known_daemons.says_hotplug([text]),
    "udev's file": known_daemons.has_rules,
    "a unit": address_unit.addresses,
    "link addresses": link_address.record_from,
    "rt_tables": rt_names.parse,
    "CNI": cni.plugins_in,
    "Cilium's state": cilium.state,
    "a list of interfaces": metadata.macs,
    "rules of iptables-save": lambda text: iptables_save.read("ip", "mangle", text),
    "rules of nft": nft_text.tables,
    "iptables-save": iptables.chains,
    "iptables-restore": restore_text.read,
    "tables of iptables-save": saved.tables,
    "ebtables-save": lambda text: ebtables.from_save("legacy", text),
    "ipset": ipset_text.read,
    "nft": nft_listing.read,
    "firewalld": firewalls.of_firewalld,
    "nftables.conf": firewalls.flushes,
    "nft list ruleset": lambda text: pastes.read({"nft list ruleset": text}),
    "sysctl -a": lambda text: pastes.read({"sysctl -a": text}),
    "a command": lambda text: command.read("commands", f"sysctl -w {text[:-1]}!"),
}
# A beginning, and what is repeated after it.
SHAPES = [
    *(
        ("", text)
        for text in (" ", "\n", "\t\n", "a", "0", "a ", "a=", "a\n", "[", "[\n", "{", '"', "#", "#\n", "/*", "'", "\\", ",")
    ),
    *(("", text) for text in ("lease {", "lease {\n", "option routers 1", "[a]\n", "a = b ", "when:[", "when:\n", "when: \n - ")),
    *(("", text) for text in ("net.", "net.a=", "*a\n", "*mangle\n", "table a b {\n", "elements = { ", "- a\n", ":A B [0:0]\n")),
    *(("-A A ", text) for text in (" ", "--dport 1 ", "-c 1", ", pcnt = 1", '"', "! ", "-j A ", "/* ")),
    ("net.ipv4.ip_forward = 1", "0:"),
    *((start, " ") for start in ("table ip t {", "a = b", "[a]\na", "when:", "create a", "flush", "interface-name=")),
    *((start, "\n") for start in ("#", "[a]", "a=", "when:", "lease {", "table a b {")),
]
SMALL, LARGE = 8_000, 64_000


def seconds(read: Callable[[str], object], text: str) -> float:
    begin = time.process_time()
    with contextlib.suppress(DatapathError, ValueError, LookupError):
        read(text)
    return time.process_time() - begin


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_the_time_of_a_reader_grows_with_the_text_and_not_with_its_square(read: Callable[[str], object]) -> None:
    for start, repeated in SHAPES:
        small, large = (start + repeated * (size // len(repeated)) + "\x01" for size in (SMALL, LARGE))
        # Of a square, the time of a text eight times as long is 64 times as long. A busy machine may be slow three times.
        assert any(seconds(read, large) < 0.1 + 30 * seconds(read, small) for _attempt in range(4)), (start, repeated)
