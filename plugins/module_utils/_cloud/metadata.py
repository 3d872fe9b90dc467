# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses the answers of a cloud's metadata service about a node's network interfaces, and finds the link of each interface.

Azure answers with one JSON text. AWS and Alibaba Cloud have a tree of small text files, with a folder for each interface's
MAC address. A file is missing if the interface has no such value.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core import json_object
from .._core.errors import Failure, Invalid
from .._core.names import CLOUDS

ENDPOINTS = dict(zip(CLOUDS, ("http://169.254.169.254", "http://169.254.169.254", "http://100.100.100.200")))

# The chassis asset tag of every Azure machine, of any generation. The vendor "Microsoft Corporation" alone means any Hyper-V.
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"

# Azure's IPv6 subnets always have this prefix length (Azure Virtual Network FAQ).
AZURE_IPV6_PREFIX = 64

Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
ADDRESSES: dict[int, t.Callable[[str], Address]] = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}
THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")  # RFC 1122, section 3.2.1.3
T = t.TypeVar("T")

SYNTHETIC = "hv_netvsc"  # the driver of Hyper-V's synthetic link, which represents an Azure interface, with or without a VF


class NoMetadata(Failure):
    """The metadata service gave no valid answer.

    is_passing: true if a retry may help.
    tries: how often the service was asked.
    """

    is_passing = True
    tries = 1

    def __str__(self) -> str:
        return super().__str__() + (f" The service was asked {self.tries} times." if self.tries > 1 else "")


class Unreachable(NoMetadata):
    """The connection was refused or cut, or there is no route to the service."""

    def __init__(self, request: str, reason: str) -> None:
        super().__init__(
            f"{request} failed: {reason}. The metadata service is not up, this is not its address, or a firewall"
            " blocks the node's requests."
        )


class Silent(NoMetadata):
    """The service did not send a complete answer within ``seconds``."""

    def __init__(self, request: str, seconds: float, received: int) -> None:
        came = f"{received} bytes came, but not the whole answer" if received else "nothing came"
        super().__init__(
            f"{request} was not answered within {seconds:g} s: {came}. The metadata service is not up, is overloaded,"
            " or a firewall drops its packets."
        )


class Rejected(NoMetadata):
    """The service answered with an HTTP status other than 200."""

    def __init__(self, request: str, status: int, reason: str) -> None:
        super().__init__(
            f"{request} was answered with HTTP status {status} {reason}, where 200 is expected."
            " The metadata service has a problem, is disabled, or belongs to another cloud."
        )
        self.status = status
        # Azure: 410 for up to 70 s while a machine moves, 429 and 500 (instance-metadata-service, "Errors and debugging").
        # 404: "not found (yet)" in Microsoft's own client (cloud-init, sources/azure/imds.py), and on AWS and Alibaba Cloud
        # while an interface is being attached.
        self.is_passing = status in (404, 410, 429) or status >= 500


class Garbled(NoMetadata):
    """The service answered, but not in the form that its vendor documents."""

    def __init__(self, place: str, expected: str, text: str) -> None:
        excerpt = text if len(text) <= 80 else f"{text[:80]}..."
        super().__init__(
            f"{place} must be {expected}; found {excerpt!r}. A server other than this cloud's metadata service"
            " may have answered, or the answer was cut off."
        )


class Unidentified(NoMetadata):
    """No cloud's service answered, and the node's firmware does not name its cloud."""

    def __init__(self, problems: t.Mapping[str, NoMetadata]) -> None:
        answers = " ".join(f"{cloud}: {error}" for cloud, error in problems.items())
        super().__init__(f"no cloud's metadata service was found; set cloud if it is known. {answers}")
        self.is_passing = any(error.is_passing for error in problems.values())


class Gateway(t.NamedTuple):
    """The router of an interface's subnet, by family; None if neither the metadata nor the cloud's rules name it."""

    ipv4: str | None = None
    ipv6: str | None = None


class Nic(t.NamedTuple):
    """A network interface as the cloud knows it.

    ipv4, ipv6: its global unicast addresses, in their canonical form and in the metadata's order.
    """

    mac: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    gateway: Gateway = Gateway()
    primary: bool = False
    device_number: int | None = None
    network_card: int | None = None


class Tree(t.NamedTuple):
    """A cloud's names for the files in an interface's folder, and for the header of its tokens.

    needs_token: False if the cloud also answers requests without a token.
    gateway4, gateway6, device_number, network_card: empty if the cloud has no such file.
    """

    token_header: str
    needs_token: bool
    ipv4: str
    ipv6: str
    subnet4: str
    subnet6: str
    gateway4: str = ""
    gateway6: str = ""
    device_number: str = ""
    network_card: str = ""

    def files(self) -> tuple[str, ...]:
        names = (self.ipv4, self.ipv6, self.subnet4, self.subnet6, self.gateway4, self.gateway6)
        return tuple(name for name in (*names, self.device_number, self.network_card) if name)


TREES = {
    # Amazon EC2 user guide, "Instance metadata categories" and "Use IMDSv2".
    "aws": Tree(
        token_header="X-aws-ec2-metadata-token",
        needs_token=True,
        ipv4="local-ipv4s",
        ipv6="ipv6s",
        subnet4="subnet-ipv4-cidr-block",
        subnet6="subnet-ipv6-cidr-blocks",
        device_number="device-number",
        network_card="network-card",
    ),
    # Alibaba Cloud ECS user guide, "Instance metadata".
    "alibaba": Tree(
        token_header="X-aliyun-ecs-metadata-token",
        needs_token=False,
        ipv4="private-ipv4s",
        ipv6="ipv6s",
        subnet4="vswitch-cidr-block",
        subnet6="vswitch-ipv6-cidr-block",
        gateway4="gateway",
        gateway6="ipv6-gateway",
    ),
}


class Link(t.NamedTuple):
    """A network link of the node, with the properties that identify the link of a cloud's interface.

    driver: of the device behind the link, None for a virtual link.
    lowers: the links below it (/sys/class/net/*/lower_*), for example a bridge's ports.
    ifindex: the link's index; 0 if unknown.
    """

    name: str
    mac: str
    master: str | None = None
    driver: str | None = None
    lowers: tuple[str, ...] = ()
    ifindex: int = 0


def choose(mac: str, links: t.Iterable[Link]) -> Link | None:
    """Return the link of the interface with this MAC address; None if no link has the address. Several links may share it.

    A bridge, bond, VLAN or macvlan above the interface's link has the same address, and so has an accelerated-networking VF
    below it, whose master is the interface's link. So a link with other links below it is not chosen, except Hyper-V's
    synthetic link.
    """
    nics = [link for link in links if link.mac == mac and (link.driver == SYNTHETIC or not link.lowers)]
    names = {link.name for link in nics}
    standing = [link for link in nics if link.master not in names]
    return min(
        standing,
        key=lambda link: (link.driver != SYNTHETIC, link.driver is None, len(link.name), link.name),
        default=None,
    )


def interface(nic: Nic, links: t.Iterable[Link]) -> dict[str, t.Any]:
    """Return an interface as imds_info returns it and the filter eni_policy takes it."""
    link = choose(nic.mac, links)
    return {
        "name": link.name if link else None,
        "mac": nic.mac,
        "ipv4": list(nic.ipv4),
        "ipv6": list(nic.ipv6),
        "gateway": {"ipv4": nic.gateway.ipv4, "ipv6": nic.gateway.ipv6},
        "subnets": list(nic.subnets),
        "primary": nic.primary,
        "master": link.master if link else None,
        "index": link.ifindex if link else None,
        "device_number": nic.device_number,
        "network_card": nic.network_card,
    }


def cloud_by_firmware(facts: t.Mapping[str, str]) -> str | None:
    """Return the cloud that the firmware names, or None.

    facts: by file name in /sys/class/dmi/id, and Xen's "hypervisor_uuid".
    """
    vendor, product = facts.get("sys_vendor", ""), facts.get("product_name", "")
    if facts.get("chassis_asset_tag") == AZURE_ASSET_TAG and vendor == "Microsoft Corporation":
        return "azure"
    if vendor == "Alibaba Cloud" or product == "Alibaba Cloud ECS":
        return "alibaba"
    # Nitro has the vendor, Xen the identifier (EC2 user guide, "Detect whether a host is an EC2 instance").
    uuids = (facts.get("product_uuid", ""), facts.get("hypervisor_uuid", ""))
    if vendor == "Amazon EC2" or any(uuid.lower().startswith("ec2") for uuid in uuids):
        return "aws"
    return None


def address_of(endpoint: str) -> tuple[str, int]:
    """Return the address and port of an endpoint. Raises Invalid.

    A host name is refused: a lookup can hang for longer than the time limit, and early in a boot there may be no resolver.
    """
    match = re.fullmatch(r"http://(?:([0-9.]+)|\[([0-9a-fA-F:]+)\])(?::([0-9]{1,5}))?/?", endpoint)
    try:
        if match and int(match[3] or 80) < 2**16:
            return str(ipaddress.ip_address(match[1] or match[2])), int(match[3] or 80)
    except ValueError:
        pass
    raise Invalid("endpoint", endpoint, "http:// and an IP address (IPv6 in brackets), with :PORT if it is not 80")


def azure(answer: str) -> tuple[Nic, ...]:
    """Parse Azure's network/interface. Raises Garbled.

    An interface without "ipv6" has no IPv6 address.
    """
    interfaces = _azure_interfaces(answer)
    return tuple(_azure_nic(f"interface[{index}]", interface, index == 0) for index, interface in enumerate(interfaces))


def azure_ipv6(answer: str) -> tuple[str, ...]:
    """Return the primary interface's IPv6 addresses. The rest of Azure's network/interface is not parsed. Raises Garbled."""
    return _azure_addresses("interface[0]", _azure_interfaces(answer)[0], "ipv6", 6)


def _azure_interfaces(answer: str) -> list[t.Any]:
    """Return at least one interface; the first is the primary one, as in AgentBaker (cse_config.sh, getPrimaryNicIP).

    Raises Garbled.
    """
    try:
        interfaces = json_object.load(answer)
    except ValueError:
        raise Garbled("Azure's list of interfaces", "JSON", answer) from None
    if not isinstance(interfaces, list) or not interfaces:
        raise Garbled("Azure's list of interfaces", "a list of at least one", answer)
    return interfaces


def _azure_nic(place: str, interface: t.Any, primary: bool) -> Nic:
    ipv4, ipv6 = _azure_addresses(place, interface, "ipv4", 4), _azure_addresses(place, interface, "ipv6", 6)
    bases = (f"{entry.get('address')}/{entry.get('prefix')}" for entry in _entries(place, interface, "ipv4", "subnet"))
    subnets4 = _networks(f"{place}.ipv4.subnet", 4, bases)
    subnets6 = _networks(f"{place}.ipv6", 6, (f"{address}/{AZURE_IPV6_PREFIX}" for address in ipv6))
    mac = _mac(f"{place}.macAddress", interface.get("macAddress"))
    return Nic(mac, ipv4, ipv6, (*subnets4, *subnets6), Gateway(_first_host(subnets4)), primary)


def _azure_addresses(place: str, nic: t.Any, family: str, version: int) -> tuple[str, ...]:
    entries = _entries(place, nic, family, "ipAddress")
    texts = [str(entry.get("privateIpAddress") or "") for entry in entries]
    return _hosts(f"{place}.{family}.ipAddress", version, filter(None, texts))


def _entries(place: str, nic: t.Any, family: str, listed: str) -> list[dict[str, t.Any]]:
    """Return ``nic[family][listed]``; empty if the family or the list is missing. Raises Garbled for another type."""
    if not isinstance(nic, dict):
        raise Garbled(place, "an object", str(nic))
    current = nic.get(family) or {}
    entries = (current.get(listed) or []) if isinstance(current, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Garbled(f"{place}.{family}.{listed}", "a list of objects", str(current))
    return entries


def macs(listing: str) -> tuple[str, ...]:
    """Return the folder names in a tree's list of interfaces. Raises Garbled."""
    names = tuple(name.rstrip("/") for name in _words(listing))
    for name in names:
        _mac("the list of interfaces", name)
    if not names:
        raise Garbled("the list of interfaces", "a list of at least one MAC address", listing)
    return names


def tree(cloud: str, folders: t.Mapping[str, t.Mapping[str, str]], primary: str) -> tuple[Nic, ...]:
    """Parse the interfaces of a tree. Raises Garbled.

    folders: folder name -> file name -> text, without missing files.
    primary: the instance's MAC address, which is that of the primary interface.
    """
    primary_mac = node_mac(primary)
    return tuple(_tree_nic(TREES[cloud], name, files, primary_mac) for name, files in folders.items())


def node_mac(text: str) -> str:
    """Return a tree's file "mac": the MAC address of the primary interface, which is also the name of its folder.

    Raises Garbled.
    """
    return _mac("the node's mac", text.strip())


def tree_ipv6(cloud: str, folder: str, text: str) -> tuple[str, ...]:
    """Return an interface's IPv6 addresses, from the file in its folder that lists them. Raises Garbled."""
    return _hosts(f"{folder}/{TREES[cloud].ipv6}", 6, _words(text))


def _tree_nic(names: Tree, folder: str, files: t.Mapping[str, str], primary: str) -> Nic:
    if not files:  # every interface is in a subnet, so its folder cannot be empty
        raise Garbled(f"the folder of interface {folder}", f"a folder with {', '.join(names.files())}", "")

    def read(parse: t.Callable[[str, int, t.Iterable[str]], tuple[str, ...]], file: str, version: int) -> tuple[str, ...]:
        return parse(f"{folder}/{file}", version, _words(files.get(file, "")))

    ipv4, ipv6 = read(_hosts, names.ipv4, 4), read(_hosts, names.ipv6, 6)
    subnets4, subnets6 = read(_networks, names.subnet4, 4), read(_networks, names.subnet6, 6)
    routers4, routers6 = read(_routers, names.gateway4, 4), read(_routers, names.gateway6, 6)
    router4 = next(iter(routers4), None) if names.gateway4 else _first_host(subnets4)
    mac = _mac("the list of interfaces", folder)
    gateway = Gateway(router4, next(iter(routers6), None))
    device, card = (_number(f"{folder}/{file}", files.get(file)) for file in (names.device_number, names.network_card))
    return Nic(mac, ipv4, ipv6, (*subnets4, *subnets6), gateway, mac == primary, device, card)


def _number(place: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,4}", text.strip()):
        raise Garbled(place, "a number", text)
    return int(text)


def _words(text: str) -> list[str]:
    """Return the items of a list in any of its forms: one per line (AWS), ``["a","b"]`` or ``[a,b]`` (both Alibaba Cloud)."""
    return re.findall(r'[^\s,"\[\]]+', text)


def _mac(place: str, value: object) -> str:
    """Parse a MAC address. Azure writes ``000D3AF806EC``, the others ``00:16:3e:0f:12:34``. Raises Garbled."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{2}([:-]?[0-9a-fA-F]{2}){5}", value):
        raise Garbled(place, "a MAC address", "nothing" if value is None else str(value))
    return ":".join(re.findall("[0-9a-f]{2}", value.lower()))


def _hosts(place: str, version: int, texts: t.Iterable[str]) -> tuple[str, ...]:
    """Return the global unicast addresses (RFC 4291, section 2.4), private ones included. Raises Garbled."""
    return tuple(str(address) for address in _unicast(place, version, texts) if not address.is_link_local)


def _routers(place: str, version: int, texts: t.Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of routers, which may be link-local. Raises Garbled."""
    return tuple(str(address) for address in _unicast(place, version, texts))


def _unicast(place: str, version: int, texts: t.Iterable[str]) -> t.Iterator[Address]:
    """Yield the unicast addresses, without loopback and IPv4-mapped ones, and without those that have a zone (%eth0)."""
    for text in texts:
        address = _parsed(place, f"an IPv{version} address", ADDRESSES[version], text)
        is_special = address.is_unspecified or address.is_loopback or address.is_multicast
        if isinstance(address, ipaddress.IPv6Address):
            is_special |= address.scope_id is not None or address.ipv4_mapped is not None
        else:
            is_special |= address.is_reserved or address in THIS_NETWORK
        if not is_special:
            yield address


def _networks(place: str, version: int, texts: t.Iterable[str]) -> tuple[str, ...]:
    """Return each subnet once. Host bits in a subnet's base are cleared. Raises Garbled."""
    kind = ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network
    subnets = (_parsed(place, f"an IPv{version} subnet", lambda base: kind(base, strict=False), text) for text in texts)
    return tuple(dict.fromkeys(map(str, subnets)))


def _parsed(place: str, expected: str, parse: t.Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError:
        raise Garbled(place, expected, text) from None


def _first_host(subnets: t.Sequence[str]) -> str | None:
    """Return the router of an IPv4 subnet: base plus one, in Azure (Virtual Network FAQ) and AWS (VPC user guide, "Subnet
    sizing").

    IPv6 has no such rule: both clouds' routers send router advertisements from a link-local address.
    """
    network = ipaddress.IPv4Network(subnets[0]) if subnets else None
    return str(network[1]) if network and network.num_addresses > 1 else None
