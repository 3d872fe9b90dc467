#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: network_daemons
short_description: Keep a node's network daemons from removing foreign rules and routes
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Whenever systemd-networkd configures a link, for example when an interface is plugged in or at C(netplan apply), it removes
    every foreign policy rule, and foreign routes on links that it manages. This module prevents that with
    C(ManageForeignRoutingPolicyRules=no) (systemd 249) and C(ManageForeignRoutes=no) (systemd 246) in
    C(/etc/systemd/networkd.conf.d/90-kubenode.conf).
  - If other permanent files already have these settings, as on nodes of EKS, nothing is written.
  - Other daemons and cloud agents are recognised by their files; see RV(daemons). The module refuses to run if nm-cloud-setup is
    active, because nm-cloud-setup removes rules of pods. It warns of daemons that route the same interfaces in their own way, of
    rules that such an agent left in the kernel, of a second default route by DHCP, and of firewalld if its reload flushes the
    rules of other programs.
  - Cloud agents that configure interfaces which the CNI attaches are kept off these, each by one file; see O(agents).
notes:
  - The drop-in is written whenever systemd-networkd is installed, because systemd-networkd may be started later.
  - A running systemd-networkd is restarted if it was started before the settings were written. Its links, their addresses
    and routes are kept. During the restart, C(KeepConfiguration=static) is set in C(/run/systemd/network) for each
    C(systemd.network) file that does not set it.
  - systemd before 249 has no setting for rules, and systemd before 246 has none for routes. The module warns of such a version if
    it removes foreign rules or routes.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(present), systemd-networkd keeps foreign rules and routes.
      - With V(absent), the drop-in is removed. A running systemd-networkd keeps its settings until its next start. It is not
        restarted, because without the settings it removes the rules and routes of all other programs as it starts.
    type: str
    choices: [present, absent]
    default: present
  restart:
    description:
      - Whether to restart a running systemd-networkd that has not read the settings. With V(false), they apply from its next
        start.
      - systemd-networkd is never restarted in a root that is not process 1's, such as a chroot or an image build.
    type: bool
    default: true
  agents:
    description:
      - With V(masked), agents that would configure an interface as it appears are kept from it, if they are on the node.
        C(/etc/udev/rules.d/99-vpc-policy-routes.rules) hides the rule of amazon-ec2-net-utils, which configures each interface
        with its addresses, those of pods included. C(/etc/cloud/cloud.cfg.d/99-kubenode-hotplug.cfg) turns off the hotplug of
        cloud-init, where cloud-init has installed it; cloud-init then configures the network at an instance's first boot only.
        C(/etc/udev/rules.d/76-kubenode-ifupdown.rules) keeps the cloud-ifupdown-helper of Debian 11 from links of pods.
      - udev and cloud-init read these files at each event, so that they decide for the running node, too. What an agent has
        already configured stays.
      - A foreign file at one of these paths is not replaced.
      - With V(ignore), and with O(state=absent), these files are removed.
    version_added: 1.0.0
    type: str
    choices: [masked, ignore]
    default: masked
seealso:
  - module: kubenode.datapath.policy_routes
  - name: networkd.conf
    description: The settings, and the versions that introduced them.
    link: https://www.freedesktop.org/software/systemd/man/latest/networkd.conf.html
"""

EXAMPLES = r"""
- name: Keep systemd-networkd from removing rules and routes of the CNI and of this collection
  kubenode.datapath.network_daemons:

- name: Prepare an image, or leave the restart to a maintenance window
  kubenode.datapath.network_daemons:
    restart: false

- name: Leave interfaces that appear to the agents of the image
  kubenode.datapath.network_daemons:
    agents: ignore

- name: Remove the settings
  kubenode.datapath.network_daemons:
    state: absent
"""

RETURN = r"""
daemons:
  description:
    - The network daemons and cloud agents on the node. Known are systemd-networkd, NetworkManager, nm-cloud-setup, netplan,
      cloud-init and its hotplug, cloud-ifupdown-helper, amazon-ec2-net-utils and its predecessor
      ec2-net-utils, and firewalld.
    - An agent of which the kernel still has rules is listed even if it is no longer on the node.
    - In check mode, the state that they would have after a run.
  returned: success
  type: list
  elements: dict
  sample:
    - name: systemd-networkd
      active: true
      version: 252
      verdict: kept_off
      reason: >-
        ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in /etc/systemd/networkd.conf.d/90-kubenode.conf
  contains:
    name:
      description: Name of the daemon.
      type: str
    active:
      description: Whether the daemon runs. For an agent that does not run all the time, whether it is set up to run.
      type: bool
    version:
      description: Version of the daemon; null if the node's files do not show it. For systemd-networkd, the version of systemd.
      type: int
    verdict:
      description:
        - What the daemon does to foreign rules and routes.
        - V(harmless) if it keeps them, V(kept_off) if it keeps them because of its configuration, V(hostile) if it removes them,
          V(competing) if it keeps them, but routes the same interfaces in its own way, or if rules that it left still do.
      type: str
    reason:
      description: The reason for the verdict.
      type: str
diff:
  description: The drop-in before and after.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("network_daemons")


if __name__ == "__main__":
    main()
