# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metadata as values: the clouds' answers are read, the link that an answer means is found, and when to ask again."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import enis_backend, imds_backend, metadata
from ansible_collections.kubenode.datapath.plugins.module_utils._cloud.metadata import (
    Garbled,
    Gateway,
    Link,
    Nic,
    NoMetadata,
    Rejected,
    Silent,
    Unidentified,
    Unreachable,
    address_of,
    choose,
    cloud_by_firmware,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid

# Azure


def azure_nic(mac: str, ipv4: str, base: str, **families: t.Any) -> dict[str, t.Any]:
    addresses = [{"privateIpAddress": ipv4, "publicIpAddress": ""}]
    return {
        "macAddress": mac,
        "ipv4": {"ipAddress": addresses, "subnet": [{"address": base, "prefix": "16"}]},
        **families,
    }


def ipv6(*addresses: str) -> dict[str, t.Any]:
    return {"ipAddress": [{"privateIpAddress": address} for address in addresses]}


def test_azures_interfaces_are_read() -> None:
    first = azure_nic("000D3AF806EC", "10.224.0.4", "10.224.0.0", ipv6=ipv6("fd12:3456:789A:0::4"))
    second = azure_nic("000D3AF806ED", "10.225.0.4", "10.225.0.0")
    assert metadata.azure(json.dumps([first, second])) == (
        Nic(
            mac="00:0d:3a:f8:06:ec",
            ipv4=("10.224.0.4",),
            ipv6=("fd12:3456:789a::4",),
            subnets=("10.224.0.0/16", "fd12:3456:789a::/64"),
            gateway=Gateway(ipv4="10.224.0.1"),
            primary=True,
        ),
        Nic("00:0d:3a:f8:06:ed", ("10.225.0.4",), (), ("10.225.0.0/16",), Gateway(ipv4="10.225.0.1")),
    )


@pytest.mark.parametrize(
    "family",
    [{}, {"ipv6": None}, {"ipv6": {}}, {"ipv6": {"ipAddress": []}}, {"ipv6": {"ipAddress": None}}, {"ipv6": ipv6("")}],
    ids=str,
)
def test_an_interface_without_ipv6_is_no_error(family: dict[str, t.Any]) -> None:
    (nic,) = metadata.azure(json.dumps([azure_nic("000D3AF806EC", "10.224.0.4", "10.224.0.0", **family)]))
    assert nic.ipv6 == ()
    assert nic.ipv4 == ("10.224.0.4",)


def test_an_interface_may_have_ipv6_alone() -> None:
    (nic,) = metadata.azure(json.dumps([{"macAddress": "000D3AF806EC", "ipv6": ipv6("fd00::4", "fd00::5", "fd00:1::4")}]))
    assert nic == Nic("00:0d:3a:f8:06:ec", (), ("fd00::4", "fd00::5", "fd00:1::4"), ("fd00::/64", "fd00:1::/64"), primary=True)


WHOLE = json.dumps([azure_nic("000D3AF806EC", "10.224.0.4", "10.224.0.0", ipv6=ipv6("fd00::4"))])


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("", "Azure's list of interfaces must be JSON; found ''."),
        ("<!DOCTYPE html><html>It works!</html>", "<!DOCTYPE html>"),
        *((WHOLE[:length], "JSON") for length in (1, len(WHOLE) // 2, len(WHOLE) - 1)),
        ("[" * 100_000, "JSON"),
        ("[]", "Azure's list of interfaces must be a list of at least one; found '[]'."),
        (f'["{"a" * 75}"]', "interface[0]"),
        ("null", "a list of at least one"),
        ('{"error": "Bad request. Required metadata header not specified"}', "Required metadata header"),
        ('{"network": {"interface": []}}', "a list of at least one"),
        ("[7]", "interface[0] must be an object; found '7'."),
        ("[{}]", "interface[0].macAddress must be a MAC address; found 'nothing'"),
        ('[{"macAddress": "000D3AF806"}]', "interface[0].macAddress"),
        ('[{"macAddress": 7}]', "interface[0].macAddress must be a MAC address; found '7'."),
        ('[{"macAddress": "000D3AF806EC", "ipv6": []}, 7]', "interface[1]"),
        (
            '[{"macAddress": "000D3AF806EC", "ipv6": [7]}]',
            "interface[0].ipv6.ipAddress must be a list of objects; found '[7]'.",
        ),
        (
            '[{"macAddress": "000D3AF806EC", "ipv4": {"subnet": 7}}]',
            "interface[0].ipv4.subnet must be a list of objects",
        ),
        ('[{"macAddress": "000D3AF806EC", "ipv6": {"ipAddress": "fd00::4"}}]', "interface[0].ipv6.ipAddress"),
        ('[{"macAddress": "000D3AF806EC", "ipv6": {"ipAddress": ["fd00::4"]}}]', "interface[0].ipv6.ipAddress"),
        (
            json.dumps([{"macAddress": "000D3AF806EC", "ipv6": ipv6("10.0.0.4")}]),
            "must be an IPv6 address; found '10.0.0.4'",
        ),
        (json.dumps([azure_nic("000D3AF806EC", "fd00::4", "10.224.0.0")]), "interface[0].ipv4"),
        (
            json.dumps([azure_nic("000D3AF806EC", "10.0.0.4", "10.0")]),
            "interface[0].ipv4.subnet must be an IPv4 subnet",
        ),
    ],
)
def test_an_answer_in_a_form_that_azure_does_not_document_is_an_error(answer: str, named: str) -> None:
    with pytest.raises(Garbled) as error:
        metadata.azure(answer)
    assert named in str(error.value)
    assert error.value.is_passing


SECOND = [
    {"macAddress": "", "ipv4": {}},
    azure_nic("000D3AF806ED", "10.225.0.4", ""),
    {"macAddress": "000D3AF806ED", "ipv4": {"ipAddress": [], "subnet": [{"address": "", "prefix": ""}]}, "ipv6": None},
    azure_nic("000D3AF806ED", "nowhere", "10.0", ipv6=ipv6("fd00::77", "10.0.0.4")),
    None,
]


@pytest.mark.parametrize("second", SECOND, ids=str)
@pytest.mark.parametrize(
    ("first", "addresses"),
    [
        ({"ipv6": ipv6("fd00:0::4", "", "fe80::1")}, ("fd00::4",)),
        ({"ipv6": ipv6("fd00::4"), "ipv4": {"subnet": [{"address": "", "prefix": ""}]}}, ("fd00::4",)),
        ({"ipv6": ipv6("fd00::4"), "macAddress": ""}, ("fd00::4",)),
        ({}, ()),
        ({"ipv6": None}, ()),
        ({"ipv6": {}}, ()),
        ({"ipv6": {"ipAddress": []}}, ()),
        ({"ipv6": {"ipAddress": [{}]}}, ()),
    ],
    ids=str,
)
def test_whether_a_node_has_ipv6_is_told_by_its_first_interfaces_ipv6_alone(
    first: dict[str, t.Any], addresses: tuple[str, ...], second: t.Any
) -> None:
    answer = [{**azure_nic("000D3AF806EC", "10.224.0.4", "10.224.0.0"), **first}, second]
    assert metadata.azure_ipv6(json.dumps(answer)) == addresses


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("{}", "a list of at least one"),
        ("[]", "a list of at least one"),
        ("[7]", "interface[0] must be an object; found '7'"),
        ('[{"ipv6": {"ipAddress": 7}}]', "interface[0].ipv6.ipAddress must be a list of objects"),
        ('[{"ipv6": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}]}}]', "must be an IPv6 address; found '10.0.0.4'"),
    ],
)
def test_an_answer_without_the_first_interfaces_ipv6_is_an_error(answer: str, named: str) -> None:
    with pytest.raises(Garbled) as error:
        metadata.azure_ipv6(answer)
    assert named in str(error.value)


# Trees


@pytest.mark.parametrize(("text", "addresses"), [("", ()), ("fd00::4\nfd00::5", ("fd00::4", "fd00::5")), ("[fe80::1]", ())])
def test_a_trees_list_of_ipv6_addresses_is_read(text: str, addresses: tuple[str, ...]) -> None:
    assert metadata.tree_ipv6("aws", "0e:49:61:0f:c3:11", text) == addresses


AWS_FILES = {
    "local-ipv4s": "10.0.1.5\n10.0.1.6",
    "ipv6s": "2600:1f13:0:1::5",
    "subnet-ipv4-cidr-block": "10.0.1.0/24",
    "subnet-ipv6-cidr-blocks": "2600:1f13:0:1::/64",
    "device-number": "1",
    "network-card": "0",
}
ALIBABA_FILES = {
    "private-ipv4s": '["192.168.1.10","192.168.1.11"]',
    "ipv6s": "[2408:4005:325:a204::10, 2408:4005:325:a204::11]",
    "gateway": "192.168.1.253",
    "ipv6-gateway": "2408:4005:325:a204:ffff:ffff:ffff:fff7",
    "vswitch-cidr-block": "192.168.1.0/24",
    "vswitch-ipv6-cidr-block": "2408:4005:325:a204::/64",
}


def test_awss_interfaces_are_read() -> None:
    listing = "0e:49:61:0f:c3:11/\n0e:49:61:0f:c3:12/"
    first, second = metadata.macs(listing)
    assert metadata.tree(
        "aws", {first: AWS_FILES, second: {"subnet-ipv4-cidr-block": "10.0.2.0/24", "local-ipv4s": "10.0.2.5"}}, first
    ) == (
        Nic(
            mac="0e:49:61:0f:c3:11",
            ipv4=("10.0.1.5", "10.0.1.6"),
            ipv6=("2600:1f13:0:1::5",),
            subnets=("10.0.1.0/24", "2600:1f13:0:1::/64"),
            gateway=Gateway(ipv4="10.0.1.1"),
            primary=True,
            device_number=1,
            network_card=0,
        ),
        Nic("0e:49:61:0f:c3:12", ("10.0.2.5",), (), ("10.0.2.0/24",), Gateway(ipv4="10.0.2.1")),
    )


def test_alibabas_interfaces_are_read() -> None:
    assert metadata.tree("alibaba", {"00:16:3E:0F:12:34": ALIBABA_FILES}, "00:16:3e:0f:12:34\n") == (
        Nic(
            mac="00:16:3e:0f:12:34",
            ipv4=("192.168.1.10", "192.168.1.11"),
            ipv6=("2408:4005:325:a204::10", "2408:4005:325:a204::11"),
            subnets=("192.168.1.0/24", "2408:4005:325:a204::/64"),
            gateway=Gateway(ipv4="192.168.1.253", ipv6="2408:4005:325:a204:ffff:ffff:ffff:fff7"),
            primary=True,
        ),
    )


SPECIAL6 = ["::", "::1", "fe80::1", "fe80::1%eth0", "2001:db8::5%eth0", "febf::1", "ff02::1", "::ffff:10.0.0.4"]
SPECIAL4 = ["0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255"]


@pytest.mark.parametrize("address", SPECIAL6 + SPECIAL4)
def test_only_global_unicast_addresses_count(address: str) -> None:
    family = "ipv6" if ":" in address else "ipv4"
    nic = azure_nic("000D3AF806EC", "10.0.0.4", "10.0.0.0", ipv6=ipv6("fd12::4"))
    nic[family]["ipAddress"].insert(0, {"privateIpAddress": address})
    (found,) = metadata.azure(json.dumps([nic]))
    assert (found.ipv4, found.ipv6, found.subnets) == (("10.0.0.4",), ("fd12::4",), ("10.0.0.0/16", "fd12::/64"))
    file = {"ipv4": "private-ipv4s", "ipv6": "ipv6s"}[family]
    files = {**ALIBABA_FILES, file: f"[{address}, {ALIBABA_FILES[file][1:]}"}
    (beside,) = metadata.tree("alibaba", {"00:16:3e:0f:12:34": files}, "00:16:3e:0f:12:34")
    (without,) = metadata.tree("alibaba", {"00:16:3e:0f:12:34": ALIBABA_FILES}, "00:16:3e:0f:12:34")
    assert beside == without


@pytest.mark.parametrize(
    ("address", "gateway"),
    [
        ("fe80::eeff:ffff:feff:ffff", "fe80::eeff:ffff:feff:ffff"),
        *((one, None) for one in ("::", "ff02::2", "fe80::1%eth0")),
    ],
)
def test_a_router_may_have_a_link_local_address(address: str, gateway: str | None) -> None:
    files = {**ALIBABA_FILES, "ipv6-gateway": address}
    (nic,) = metadata.tree("alibaba", {"00:16:3e:0f:12:34": files}, "00:16:3e:0f:12:34")
    assert nic.gateway.ipv6 == gateway


@pytest.mark.parametrize("text", ["", "[]", "\n"])
def test_an_empty_file_of_a_tree_is_an_empty_list(text: str) -> None:
    (nic,) = metadata.tree("alibaba", {"00:16:3e:0f:12:34": {**ALIBABA_FILES, "ipv6s": text}}, "00:16:3e:0f:12:34")
    assert nic.ipv6 == ()


@pytest.mark.parametrize("file", sorted(AWS_FILES))
def test_a_file_of_a_tree_may_be_missing(file: str) -> None:
    files = {name: text for name, text in AWS_FILES.items() if name != file}
    (nic,) = metadata.tree("aws", {"0e:49:61:0f:c3:11": files}, "0e:49:61:0f:c3:11")
    assert nic.mac == "0e:49:61:0f:c3:11"


def test_a_gateway_that_alibaba_does_not_tell_is_not_guessed() -> None:
    files = {name: text for name, text in ALIBABA_FILES.items() if "gateway" not in name}
    (nic,) = metadata.tree("alibaba", {"00:16:3e:0f:12:34": files}, "00:16:3e:0f:12:34")
    assert nic.gateway == Gateway()


EXPECTED = {
    "local-ipv4s": "an IPv4 address",
    "ipv6s": "an IPv6 address",
    "subnet-ipv4-cidr-block": "an IPv4 subnet",
    "subnet-ipv6-cidr-blocks": "an IPv6 subnet",
    "device-number": "a number",
    "network-card": "a number",
    "gateway": "an IPv4 address",
    "ipv6-gateway": "an IPv6 address",
}


@pytest.mark.parametrize(
    ("cloud", "files", "file"),
    [
        *(("aws", AWS_FILES, file) for file in AWS_FILES),
        *(("alibaba", ALIBABA_FILES, file) for file in list(EXPECTED)[-2:]),
    ],
)
def test_an_error_page_in_place_of_a_file_of_a_tree_is_an_error(cloud: str, files: dict[str, str], file: str) -> None:
    mac = "0e:49:61:0f:c3:11"
    with pytest.raises(Garbled) as error:
        metadata.tree(cloud, {mac: {**files, file: "<html>502</html>"}}, mac)
    assert str(error.value).startswith(f"{mac}/{file} must be {EXPECTED[file]}; found '<html>502</html>'. ")


def test_what_a_cloud_answers_is_quoted_up_to_80_characters() -> None:
    for length, shown in ((80, "x" * 80), (81, "x" * 80 + "...")):
        assert f"found '{shown}'. A server other than" in str(Garbled("it", "JSON", "x" * length))


def test_a_node_without_a_mac_is_an_error() -> None:
    with pytest.raises(Garbled, match="^the node's mac must be a MAC address; found '<html>'"):
        metadata.tree("aws", {"0e:49:61:0f:c3:11": AWS_FILES}, "<html>")


@pytest.mark.parametrize(("prefix", "router"), [(30, "10.0.0.1"), (31, "10.0.0.1"), (32, None)])
def test_the_router_is_the_second_address_of_a_subnet_that_has_two(prefix: int, router: str | None) -> None:
    nic = azure_nic("000D3AF806EC", "10.0.0.0", "10.0.0.0")
    nic["ipv4"]["subnet"][0]["prefix"] = prefix
    (found,) = metadata.azure(json.dumps([nic]))
    assert found.gateway == Gateway(router)


def test_an_interface_is_returned_with_its_link_or_without_one() -> None:
    nic = Nic("0e:49:61:0f:c3:11", ("10.0.0.4",), ("fd00::4",), ("10.0.0.0/24",), Gateway("10.0.0.1", "fe80::1"), True, 1, 2)
    known = {
        **{"mac": nic.mac, "ipv4": ["10.0.0.4"], "ipv6": ["fd00::4"], "subnets": ["10.0.0.0/24"], "primary": True},
        **{"gateway": {"ipv4": "10.0.0.1", "ipv6": "fe80::1"}, "device_number": 1, "network_card": 2},
    }
    link = Link("eth0", nic.mac, "br0", "ena", ifindex=7)
    assert metadata.interface(nic, [link]) == {**known, "name": "eth0", "master": "br0", "index": 7}
    assert metadata.interface(nic, []) == {**known, "name": None, "master": None, "index": None}


def test_an_interface_that_a_tree_lists_without_its_files_is_an_error() -> None:
    told = "^the folder of interface 0e:49:61:0f:c3:11 must be a folder with local-ipv4s, ipv6s, .*; found ''"
    with pytest.raises(Garbled, match=told) as error:
        metadata.tree("aws", {"0e:49:61:0f:c3:11": {}}, "0e:49:61:0f:c3:11")
    assert error.value.is_passing


@pytest.mark.parametrize("listing", ["", "\n", "<html>", "ami-id\nmac"])
def test_a_list_of_interfaces_without_macs_is_an_error(listing: str) -> None:
    with pytest.raises(Garbled, match="^the list of interfaces must be a (list of at least one )?MAC address; found"):
        metadata.macs(listing)
    with pytest.raises(Garbled, match="^the list of interfaces must be a MAC address; found 'mac'"):
        metadata.tree("aws", {"mac": AWS_FILES}, "0e:49:61:0f:c3:11")


# Links

MAC = "00:0d:3a:f8:06:ec"
SYNTHETIC = Link("eth0", MAC, driver="hv_netvsc")
VF = Link("enP1s1", MAC, master="eth0", driver="mlx5_core")


@pytest.mark.parametrize(
    ("links", "meant"),
    [
        ([], None),
        ([Link("eth1", "00:0d:3a:f8:06:ed", driver="hv_netvsc")], None),
        ([SYNTHETIC], "eth0"),
        ([Link("eth0", MAC, driver="hv_netvsc", lowers=("enP1s1",)), VF], "eth0"),
        ([Link("a0", MAC, driver="mlx5_core"), SYNTHETIC], "eth0"),
        ([Link("azure0", MAC, lowers=("eth0",)), Link("eth0", MAC, "azure0", "hv_netvsc", ("enP1s1",)), VF], "eth0"),
        ([Link("azure0", MAC), SYNTHETIC], "eth0"),
        ([SYNTHETIC, Link("eth0.7", MAC, lowers=("eth0",)), Link("a0", MAC, lowers=("eth0",))], "eth0"),
        ([Link("ens5", MAC, driver="ena"), Link("a0", MAC)], "ens5"),
        ([Link("eth0", MAC, master="br0"), Link("br0", MAC, lowers=("eth0", "veth1"))], "eth0"),
    ],
    ids=[
        "no link",
        "another address",
        "an interface of Azure",
        "with a VF",
        "with a VF that is not adopted yet",
        "with a VF, in a bridge",
        "beside a bridge that has lost it",
        "with a VLAN and a macvlan on it",
        "AWS",
        "without a device, as in a container",
    ],
)
def test_of_links_with_one_address_the_interface_itself_is_meant(links: list[Link], meant: str | None) -> None:
    for order in (links, links[::-1]):
        chosen = choose(MAC, order)
        assert (chosen.name if chosen else None) == meant


def test_links_are_read_from_sys(tmp_path: Path) -> None:
    net, driver = tmp_path / "sys/class/net", tmp_path / "bus/drivers/hv_netvsc"
    for index, name in enumerate(("azure0", "eth0"), 1):
        (net / name).mkdir(parents=True)
        (net / name / "address").write_text("00:0D:3A:F8:06:EC\n")
        (net / name / "ifindex").write_text(f"{index}\n")
    (net / "bonding_masters").write_text("bond0\n")
    (net / "gone").mkdir()
    (net / "eth0/device").mkdir()
    (net / "eth0/device/driver").symlink_to(driver)
    (net / "eth0/master").symlink_to(net / "azure0")
    (net / "azure0/lower_eth0").symlink_to(net / "eth0")
    assert enis_backend.links(str(tmp_path)) == (
        Link("azure0", MAC, lowers=("eth0",), ifindex=1),
        Link("eth0", MAC, master="azure0", driver="hv_netvsc", ifindex=2),
    )


# Which cloud

AZURE_FIRMWARE = {"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": metadata.AZURE_ASSET_TAG}


@pytest.mark.parametrize(
    ("facts", "cloud"),
    [
        (AZURE_FIRMWARE, "azure"),
        ({**AZURE_FIRMWARE, "chassis_asset_tag": "1234"}, None),
        ({**AZURE_FIRMWARE, "sys_vendor": "Acme"}, None),
        ({"sys_vendor": "Amazon EC2", "product_uuid": "ec2f58a9-0000-0000-0000-000000000000"}, "aws"),
        ({"sys_vendor": "Xen", "product_uuid": "EC2F58A9-0000-0000-0000-000000000000"}, "aws"),
        ({"hypervisor_uuid": "ec2f58a9-0000-0000-0000-000000000000"}, "aws"),
        ({"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "QEMU"}, None),
        ({}, None),
    ],
)
def test_the_firmware_tells_the_cloud(facts: dict[str, str], cloud: str | None, tmp_path: Path) -> None:
    assert cloud_by_firmware(facts) == cloud
    for name, text in facts.items():
        file = tmp_path / ("sys/hypervisor/uuid" if name == "hypervisor_uuid" else f"sys/class/dmi/id/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert imds_backend.cloud_by_firmware(str(tmp_path)) == cloud


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("http://169.254.169.254", ("169.254.169.254", 80)),
        ("http://169.254.169.254/", ("169.254.169.254", 80)),
        ("http://127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("http://[fd00:ec2::254]", ("fd00:ec2::254", 80)),
        ("http://[FD00:ec2::254]:81/", ("fd00:ec2::254", 81)),
    ],
)
def test_an_endpoint_is_an_address(endpoint: str, address: tuple[str, int]) -> None:
    assert address_of(endpoint) == address


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "169.254.169.254",
        "https://169.254.169.254",
        "http://metadata",
        "http://1.2.3",
        "http://[1.2.3.4]",
        "http://fd00::1",
        "http://1.2.3.4:0x50",
        "http://1.2.3.4:65536",
        "http://1.2.3.4/latest",
        "http://1.2.3.4\r\nX: y",
    ],
)
def test_another_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid) as error:
        address_of(endpoint)
    allowed = "http:// and an IP address (IPv6 in brackets), with :PORT if it is not 80"
    assert str(error.value) == f"endpoint must be {allowed}; {endpoint!r} was given"


# Asking again

REQUEST = "GET http://169.254.169.254/"
SILENT = Silent(REQUEST, 5, 0)


class Service:
    """Gives one answer after the other, then repeats the last one; each takes ``lasting`` seconds."""

    def __init__(self, *answers: NoMetadata | str, lasting: float = 0.0) -> None:
        self.answers, self.lasting = list(answers), lasting
        self.now, self.limits, self.pauses = 100.0, list[float](), list[float]()

    def read(self, timeout: float) -> str:
        self.limits.append(timeout)
        self.now += min(self.lasting, timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, NoMetadata):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def ask(self, **limits: float) -> str:
        return imds_backend.with_retries(self.read, 5, sleep=self.sleep, clock=lambda: self.now, **limits)


def test_a_service_that_answers_is_asked_once() -> None:
    service = Service("hello")
    assert service.ask(retries=5) == "hello"
    assert service.pauses == []


def test_pauses_double_up_to_a_second() -> None:
    service = Service(*[Unreachable(REQUEST, "Connection refused")] * 5, "hello")
    assert service.ask(retries=5) == "hello"
    assert service.pauses == [0.25, 0.5, 1, 1, 1]


def test_an_hour_of_retries_ends_as_one_retry_does() -> None:
    service = Service(SILENT)
    with pytest.raises(Silent, match=r"The service was asked 3601 times\.$"):
        service.ask(retries=3600)
    assert set(service.pauses[2:]) == {1}


def test_retries_come_to_an_end() -> None:
    service = Service(SILENT)
    with pytest.raises(Silent, match=r"The service was asked 3 times\.$"):
        service.ask(retries=2)
    assert len(service.limits) == 3


def test_no_try_outlasts_the_deadline() -> None:
    service = Service(SILENT, lasting=99)
    with pytest.raises(Silent):
        service.ask(deadline=112)
    assert service.now <= 112
    assert service.limits == [5, 5, 1.25]


def test_a_service_that_comes_up_before_the_deadline_is_heard_within_a_second() -> None:
    service = Service(*[Unreachable(REQUEST, "Connection refused")] * 22, "hello")
    assert service.ask(deadline=160) == "hello"
    assert service.now == pytest.approx(120.75)


def test_a_service_that_gives_no_answer_is_told_with_what_came_of_it() -> None:
    assert f"{REQUEST} failed: refused. The metadata service is not up," in str(Unreachable(REQUEST, "refused"))
    silent = Silent(REQUEST, 5, 0)
    assert "was not answered within 5 s: nothing came." in str(silent)
    assert "within 0.5 s: 7 bytes came, but not the whole answer." in str(Silent(REQUEST, 0.5, 7))
    assert str(silent).endswith(" or a firewall drops its packets.")
    rejected = Rejected(REQUEST, 403, "Forbidden")
    assert str(rejected).startswith(f"{REQUEST} was answered with HTTP status 403 Forbidden, where 200 is expected. The")
    assert rejected.status == 403
    both = str(Unidentified({"azure": silent, "aws": rejected}))
    assert both == f"no cloud's metadata service was found; set cloud if it is known. azure: {silent} aws: {rejected}"


@pytest.mark.parametrize(("retries", "said"), [(0, ""), (1, " The service was asked 2 times.")])
def test_a_service_says_how_often_it_was_asked_if_more_than_once(retries: int, said: str) -> None:
    told = str(Silent(REQUEST, 5, 0))
    with pytest.raises(Silent) as error:
        Service(Silent(REQUEST, 5, 0)).ask(retries=retries)
    assert str(error.value) == told + said


@pytest.mark.parametrize("status", [404, 410, 429, 500, 502, 503])
def test_a_status_that_may_pass_is_asked_again(status: int) -> None:
    assert Service(Rejected(REQUEST, status, "Later"), "hello").ask(retries=1) == "hello"


@pytest.mark.parametrize("status", [301, 400, 401, 403, 405])
def test_a_status_that_stays_is_not_asked_again(status: int) -> None:
    service = Service(Rejected(REQUEST, status, "Never"))
    with pytest.raises(Rejected, match=f"status {status} Never") as error:
        service.ask(retries=5)
    assert "times" not in str(error.value)


def test_several_clouds_are_asked_again_while_one_may_come() -> None:
    never, later = Rejected(REQUEST, 403, "Forbidden"), Rejected(REQUEST, 503, "Busy")
    assert Unidentified({"azure": never, "aws": later}).is_passing
    assert not Unidentified({"azure": never, "aws": never}).is_passing
