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
  fixed-address 10.9.2.7;
  option routers 10.9.2.1;
}
lease {
  interface "eth0";
  fixed-address 10.9.1.49;
  option routers 10.9.1.1;
}
lease {
  interface "eth1";
  fixed-address 10.9.2.7;
  option subnet-mask 255.255.255.0;
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
address1=FD09:0:2:0::7/64
gateway=fd09:0:2::1
"""


ADDRESSES = ("10.9.2.7", "fd09:0:2::7")
BOTH = {"ipv4": "10.9.2.1", "ipv6": "fd09:0:2::1"}
FORMER = ("192.168.122.9",)


@pytest.mark.parametrize(
    ("gateways", "expected"),
    [
        (leases.networkd("# private\nADDRESS=10.9.2.7\nROUTER=10.9.2.1 10.9.2.2\n", ADDRESSES), {"ipv4": "10.9.2.1"}),
        (leases.networkd("ADDRESS=10.9.2.7\n", ADDRESSES), {}),
        (leases.networkd("ADDRESS=10.9.2.7\nROUTER=0.0.0.0\n", ADDRESSES), {}),
        (leases.dhclient(DHCLIENT, "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (leases.dhclient(DHCLIENT, "eth2", ADDRESSES), {}),
        (leases.dhclient(DHCLIENT + DHCLIENT[:60], "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (leases.dhclient("#" * leases.MOST_OF_LEASES + DHCLIENT, "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (leases.dhclient(DHCLIENT + "#" * leases.MOST_OF_LEASES, "eth1", ADDRESSES), {}),
        (leases.keyfile(f"{KEYFILE}[wifi-security]\ninterface-name=eth0\n", "eth1", ADDRESSES), BOTH),
        (leases.network_file(NETWORK), {"ipv4": "10.9.2.1", "ipv6": "fe80::1"}),
        (leases.keyfile(KEYFILE, "eth1", ADDRESSES), BOTH),
        (leases.keyfile(KEYFILE, "eth0", ADDRESSES), {}),
    ],
)
def test_the_gateway_of_the_link_is_read(gateways: dict[str, str], expected: dict[str, str]) -> None:
    assert gateways == expected


def test_a_lease_or_connection_whose_address_the_link_does_not_have_is_of_another_time() -> None:
    assert leases.networkd("ADDRESS=10.9.2.7\nROUTER=10.9.2.1\n", FORMER) == {}
    assert leases.networkd("ROUTER=10.9.2.1\n", ADDRESSES) == {}
    assert leases.dhclient(DHCLIENT, "eth1", FORMER) == {}
    assert leases.message(packet(b"\x03\x04\x0a\x09\x02\x01\xff"), FORMER) == {}
    assert leases.keyfile(KEYFILE, "eth1", FORMER) == {}
    assert leases.keyfile(KEYFILE, "eth1", ["10.9.2.7"]) == {"ipv4": "10.9.2.1"}


def packet(options: bytes) -> bytes:
    """A DHCP message that gives a client the address 10.9.2.7."""
    return bytes(16) + b"\x0a\x09\x02\x07" + bytes(216) + leases.MAGIC + options


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
    assert leases.message(packet(options), ADDRESSES) == expected
    assert leases.message(bytes(240) + options, ADDRESSES) == {}
