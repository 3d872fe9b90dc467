# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gateways in the files of DHCP clients and network daemons."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import leases

DHCLIENT = """\
lease {
  interface "eth1";
  option routers 10.9.2.1;
}
lease {
  interface "eth0";
  option routers 10.9.1.1;
}
lease {
  interface "eth1";
  option routers 10.9.2.2, 10.9.2.3;
}
"""
NETWORK = """\
[Match]
Name=eth1

[Network]
Address=10.9.2.7/24
Gateway=_dhcp4
Gateway=fe80::1

[Route]
Destination=10.0.0.0/8
Gateway=10.9.2.9

[Route]
Gateway=10.9.2.1
Table=200
"""
KEYFILE = """\
[connection]
id=second
interface-name=eth1

[ipv4]
address1=10.9.2.7/24,10.9.2.1
method=manual

[ipv6]
gateway=fd09:0:2::1
"""


@pytest.mark.parametrize(
    ("gateways", "expected"),
    [
        (leases.assignments("# private\nADDRESS=10.9.2.7\nROUTER=10.9.2.1 10.9.2.2\n"), {"ipv4": "10.9.2.1"}),
        (leases.assignments("ADDRESS=10.9.2.7\n"), {}),
        (leases.dhclient(DHCLIENT, "eth1"), {"ipv4": "10.9.2.2"}),
        (leases.dhclient(DHCLIENT, "eth2"), {}),
        (leases.network_file(NETWORK), {"ipv4": "10.9.2.1", "ipv6": "fe80::1"}),
        (leases.keyfile(KEYFILE, "eth1"), {"ipv4": "10.9.2.1", "ipv6": "fd09:0:2::1"}),
        (leases.keyfile(KEYFILE, "eth0"), {}),
    ],
)
def test_the_gateway_of_the_link_is_read(gateways: dict[str, str], expected: dict[str, str]) -> None:
    assert gateways == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"\x01\x04\xff\xff\xff\x00\x00\x03\x08\x0a\x09\x02\x01\x0a\x09\x02\x02\xff", {"ipv4": "10.9.2.1"}),
        (b"\x01\x04\xff\xff\xff\x00\xff\x03\x04\x0a\x09\x02\x01", {}),
        (b"\x03\x04\x0a\x09", {}),
        (b"\x03", {}),
    ],
    ids=["an option after padding", "after the end", "cut in the address", "cut in the option"],
)
def test_a_message_is_read_to_its_end_and_no_further(options: bytes, expected: dict[str, str]) -> None:
    assert leases.message(bytes(236) + leases.MAGIC + options) == expected
    assert leases.message(bytes(240) + options) == {}
