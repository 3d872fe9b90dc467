#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: imds_info
short_description: Read a cloud node's network interfaces from its instance metadata service
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Asks the metadata service of Azure, AWS or Alibaba Cloud which network interfaces the node has, with their addresses,
    subnets and gateways, and tells which of the node's links each one is.
  - The service is asked straight. Proxies that the environment names are not used, and an answer has to be whole within
    O(timeout).
  - An interface without IPv6 is no error; its RV(interfaces[].ipv6) is empty. An answer that is not what the vendor documents is
    one, and so are silence, a refused connection and an HTTP status other than 200. Each has a message of its own.
notes:
  - On AWS a session token is used (IMDSv2). On Alibaba Cloud one is used where the service gives one.
  - Tried again are silence, refused and cut connections, the HTTP statuses 404, 410, 429 and 500 and above, and answers that are
    cut off or not as documented; not tried again are other statuses, 400 and 403 among them. See O(retries).
  - A container or pod gets no answer where the cloud limits the service to the machine itself, as AWS does by a hop limit of 1.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
options:
  cloud:
    description:
      - The cloud whose service is asked.
      - With V(auto) the node's firmware tells it. Azure is known by the vendor C(Microsoft Corporation) together with the asset
        tag C(7783-7084-3265-9085-8269-3286-77), Alibaba Cloud by the vendor C(Alibaba Cloud) or the product
        C(Alibaba Cloud ECS), AWS by the vendor C(Amazon EC2) or by a product or hypervisor uuid that starts with C(ec2).
      - Where the firmware does not tell, V(azure), V(aws) and V(alibaba) are asked in this order, each for one second per
        request at most. The first one that answers as its vendor documents is taken.
    type: str
    choices: [auto, azure, aws, alibaba]
    default: auto
  endpoint:
    description:
      - Where the service is, as V(http://ADDRESS) or V(http://ADDRESS:PORT). A name is not taken, as it would have to be looked
        up first.
      - The default is the cloud's own, V(http://169.254.169.254) for Azure and AWS and V(http://100.100.100.200) for
        Alibaba Cloud.
      - On AWS V(http://[fd00:ec2::254]) is a second one, where the instance has it enabled.
    type: str
  timeout:
    description:
      - Seconds that one request may take from the connection to the last byte of the answer, at most 3600.
      - A service that works answers within milliseconds.
      - Azure takes one request. The others take three, and about six more for each interface.
    type: float
    default: 5
  retries:
    description:
      - How often the service is asked again when it gave no usable answer.
      - Before the first retry is a pause of 0.25 seconds. Each pause is twice as long as the one before, up to one second.
      - With the defaults a refused connection is reported after about 4 seconds, and silence after about 34.
      - Azure may answer 410 for up to 70 seconds while it moves a machine; 70 retries sit that out.
    type: int
    default: 5
seealso:
  - name: Azure Instance Metadata Service
    description: The answers of Azure, and its errors.
    link: https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
  - name: Amazon EC2 instance metadata categories
    description: The tree that AWS answers from.
    link: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html
  - name: Alibaba Cloud ECS instance metadata
    description: The tree that Alibaba Cloud answers from.
    link: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
"""

EXAMPLES = r"""
- name: Look which interfaces the cloud gave to the node
  kubenode.datapath.imds_info:
  register: metadata

- name: Translate IPv6 health probes on nodes that have IPv6
  kubenode.datapath.nftables_probe_snat:
    state: "{{ 'present' if metadata.has_ipv6 else 'absent' }}"

- name: Wait longer for a service that comes up late
  kubenode.datapath.imds_info:
    cloud: azure
    retries: 60

- name: Show the link, addresses and gateway of the primary interface
  ansible.builtin.debug:
    msg: "{{ metadata.interfaces | selectattr('primary') | first }}"
"""

RETURN = r"""
cloud:
  description: The cloud that answered.
  returned: success
  type: str
  sample: azure
interfaces:
  description: The node's network interfaces, in the order of the metadata.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description:
        - The node's link that is this interface, found by its MAC address; null where no link has it.
        - Of several links with that address it is not the bridge, bond, VLAN or macvlan on top, and in Azure not the
          accelerated-networking VF below, but the link of driver C(hv_netvsc) between them.
      type: str
      sample: eth0
    mac:
      description: The MAC address, in lower case with colons.
      type: str
      sample: 00:0d:3a:f8:06:ec
    ipv4:
      description: Its global unicast IPv4 addresses, private ones included, the first one the primary; may be empty.
      type: list
      elements: str
      sample: [10.224.0.4]
    ipv6:
      description:
        - Its global unicast IPv6 addresses, unique local ones included; empty where it has no IPv6.
        - What the metadata says of link-local, loopback, multicast or unspecified addresses, or of addresses with a scope id
          (C(%eth0)), does not count as IPv6.
      type: list
      elements: str
      sample: ["fd12:3456:789a::4"]
    gateway:
      description: The router of its first subnet of each family.
      type: dict
      contains:
        ipv4:
          description:
            - As the metadata says on Alibaba Cloud. In Azure and AWS, whose metadata does not, the first address after
              the subnet's base, which both clouds reserve for it. Null without an IPv4 subnet.
          type: str
          sample: 10.224.0.1
        ipv6:
          description:
            - As the metadata says on Alibaba Cloud. Null in Azure and AWS, whose routers announce themselves from a
              link-local address.
          type: str
          sample: null
    subnets:
      description:
        - The subnets that it is in, IPv4 first.
        - Azure's metadata names none of IPv6. As they all have 64 bits there, they are those of the addresses.
      type: list
      elements: str
      sample: [10.224.0.0/16, "fd12:3456:789a::/64"]
    primary:
      description:
        - Whether it is the node's primary interface. That is the first one in Azure, and the one with the instance's own MAC
          address elsewhere.
      type: bool
      sample: true
    master:
      description: The link that the link is enslaved to, as a bridge; null without one.
      type: str
      sample: azure0
    index:
      description: The link's index, which is another one each time that it is plugged in; null without a link.
      type: int
      sample: 2
    device_number:
      description:
        - Its number among the instance's interfaces, as AWS says. Null elsewhere.
        - AWS may say V(0) of an interface that has just been attached.
      type: int
      sample: 0
    network_card:
      description: The number of its network card, as AWS says where an instance has several. Null elsewhere.
      type: int
      sample: null
has_ipv6:
  description: Whether any interface has an IPv6 address.
  returned: success
  type: bool
  sample: true
"""

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import enis_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._cloud.metadata import address_of
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module

LONGEST_TIMEOUT = 3600

OPTIONS: dict[str, dict[str, t.Any]] = {
    "cloud": {"type": "str", "choices": ["auto", "azure", "aws", "alibaba"], "default": "auto"},
    "endpoint": {"type": "str"},
    "timeout": {"type": "float", "default": 5},
    "retries": {"type": "int", "default": 5},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        _check(module.params)
        limits = {name: module.params[name] for name in ("timeout", "retries")}
        cloud, interfaces = enis_backend.read(module.params["cloud"], module.params["endpoint"], **limits)
        result.update(
            changed=False,
            cloud=cloud,
            interfaces=interfaces,
            has_ipv6=any(interface["ipv6"] for interface in interfaces),
        )


def _check(options: t.Mapping[str, t.Any]) -> None:
    """Raises Invalid."""
    endpoint, timeout, retries = options["endpoint"], options["timeout"], options["retries"]
    if endpoint is not None:
        address_of(endpoint)
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise Invalid("timeout", timeout, f"more than 0 and at most {LONGEST_TIMEOUT} seconds")
    if retries < 0:
        raise Invalid("retries", retries, "0 or more")


if __name__ == "__main__":
    main()
