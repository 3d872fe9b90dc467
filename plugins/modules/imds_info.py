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
  - Asks the metadata service of Azure, AWS or Alibaba Cloud for the node's network interfaces, with their addresses, subnets and
    gateways, and finds the node's link of each interface.
  - Requests go to the service directly. Proxies from the environment are not used. An answer must be complete within O(timeout).
  - An interface without IPv6 is not an error; its RV(interfaces[].ipv6) is empty. No answer, a refused connection, an HTTP status
    other than 200, and an answer that differs from the vendor's documentation are errors, each with its own message.
notes:
  - On AWS a session token is used (IMDSv2). On Alibaba Cloud a token is used if the service gives one.
  - The request is retried after no answer, a refused or cut connection, an answer that is cut off or not as documented, and the
    HTTP statuses 404, 410, 429 and 500 and above. Other statuses, for example 400 and 403, are not retried. See O(retries).
  - A container or pod gets no answer if the cloud limits the service to the machine itself, as AWS does with a hop limit of 1.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
options:
  cloud:
    description:
      - The cloud whose service is asked.
      - With V(auto), the node's firmware names the cloud. Azure is recognised by the vendor C(Microsoft Corporation) together
        with the asset tag C(7783-7084-3265-9085-8269-3286-77), Alibaba Cloud by the vendor C(Alibaba Cloud) or the product
        C(Alibaba Cloud ECS), AWS by the vendor C(Amazon EC2) or by a product or hypervisor uuid that starts with C(ec2).
      - If the firmware does not name the cloud, V(azure), V(aws) and V(alibaba) are asked in this order, with at most one second
        per request. The first cloud that answers as its vendor documents is taken.
    type: str
    choices: [auto, azure, aws, alibaba]
    default: auto
  endpoint:
    description:
      - The address of the service, V(http://ADDRESS) or V(http://ADDRESS:PORT). A host name is refused, because it would need a
        lookup.
      - The default is the cloud's own, V(http://169.254.169.254) for Azure and AWS and V(http://100.100.100.200) for
        Alibaba Cloud.
      - AWS also has V(http://[fd00:ec2::254]), if the instance has it enabled.
    type: str
  timeout:
    description:
      - Seconds that one request may take from the connection to the last byte of the answer, at most 3600.
      - A working service answers within milliseconds.
      - Azure needs one request. The other clouds need three, and about six more for each interface.
    type: float
    default: 5
  retries:
    description:
      - How often the service is asked again after the first try, if it gave no valid answer.
      - The pause before the first retry is 0.25 seconds. Each pause is twice the previous one, up to one second.
      - With the defaults, a refused connection is reported after about 4 seconds, and a missing answer after about 34 seconds.
      - Azure may answer 410 for up to 70 seconds while it moves a machine; 70 retries last longer than that.
    type: int
    default: 5
seealso:
  - name: Azure Instance Metadata Service
    description: The answers and errors of Azure's service.
    link: https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
  - name: Amazon EC2 instance metadata categories
    description: The files that AWS's service offers.
    link: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html
  - name: Alibaba Cloud ECS instance metadata
    description: The files that Alibaba Cloud's service offers.
    link: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
"""

EXAMPLES = r"""
- name: Read the node's interfaces from the metadata service
  kubenode.datapath.imds_info:
  register: metadata

- name: Translate IPv6 health probes on nodes that have IPv6
  kubenode.datapath.nftables_probe_snat:
    state: "{{ 'present' if metadata.has_ipv6 else 'absent' }}"

- name: Wait longer for a service that starts late
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
        - The node's link of this interface, found by its MAC address; null if no link has the address.
        - If several links have the address, bridges, bonds, VLANs and macvlans above the interface's link are not chosen. In
          Azure the link with driver C(hv_netvsc) is chosen, not its accelerated-networking VF.
      type: str
      sample: eth0
    mac:
      description: The MAC address, in lower case with colons.
      type: str
      sample: 00:0d:3a:f8:06:ec
    ipv4:
      description: Its global unicast IPv4 addresses, including private ones. The first is the primary address. May be empty.
      type: list
      elements: str
      sample: [10.224.0.4]
    ipv6:
      description:
        - Its global unicast IPv6 addresses, unique local ones included. Empty if it has none.
        - Link-local, loopback, multicast and unspecified addresses in the metadata, and addresses with a scope id (C(%eth0)), are
          left out.
      type: list
      elements: str
      sample: ["fd12:3456:789a::4"]
    gateway:
      description: The router of its first subnet of each family.
      type: dict
      contains:
        ipv4:
          description:
            - On Alibaba Cloud, from the metadata. On Azure and AWS, whose metadata does not contain the router, the first address
              after the subnet's base, which both clouds reserve for the router. Null without an IPv4 subnet.
          type: str
          sample: 10.224.0.1
        ipv6:
          description:
            - On Alibaba Cloud, from the metadata. Null on Azure and AWS, whose routers send router advertisements from a
              link-local address.
          type: str
          sample: null
    subnets:
      description:
        - The subnets of the interface, IPv4 first.
        - Azure's metadata names no IPv6 subnets. They are derived from the addresses, because all IPv6 subnets there have length
          64.
      type: list
      elements: str
      sample: [10.224.0.0/16, "fd12:3456:789a::/64"]
    primary:
      description:
        - Whether it is the node's primary interface. On Azure that is the first interface, on other clouds the interface with
          the instance's own MAC address.
      type: bool
      sample: true
    master:
      description: The master of the link, for example a bridge; null if it has none.
      type: str
      sample: azure0
    index:
      description: The link's index, which changes each time the interface is attached; null without a link.
      type: int
      sample: 2
    device_number:
      description:
        - On AWS, its number among the instance's interfaces. Null on other clouds.
        - AWS may report V(0) for an interface that has just been attached.
      type: int
      sample: 0
    network_card:
      description: On AWS, the number of its network card, if the instance has several cards. Null on other clouds.
      type: int
      sample: null
has_ipv6:
  description: Whether the primary interface has an IPv6 address.
  returned: success
  type: bool
  sample: true
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("imds_info")


if __name__ == "__main__":
    main()
