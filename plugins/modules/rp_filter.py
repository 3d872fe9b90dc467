#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rp_filter
short_description: Set IPv4 reverse-path filtering of a node's network interfaces, now and for each boot
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - With reverse-path filtering, the kernel drops an IPv4 packet if it would not send the answer by the interface that the packet
    came in by (V(strict)), or by any interface (V(loose)). With policy routing a reply may come in by the primary interface
    although the route back leads through another one. Strict filtering on the primary interface then drops the reply.
  - The effective value of an interface is the larger of C(net.ipv4.conf.all.rp_filter) and the interface's own value. If
    C(net.ipv4.conf.all.rp_filter) makes O(mode) impossible, the module fails, unless O(raise_all) is set.
  - A correct value may not last. A write to C(net.ipv4.conf.default.rp_filter) also changes each interface whose own value was
    never written. So the module writes each interface once, and records that under C(/run/kubenode) until the next boot, by the
    interface's index. An interface that systemd-sysctl at boot, or udev when the interface appeared, has set from O(path) needs
    no other write.
  - IPv6 has no such setting. The equivalent for IPv6 is a rule of nftables in a chain of hook prerouting,
    C(fib saddr . mark . iif oif missing drop) for V(strict), C(fib saddr . mark oif missing drop) for V(loose). Without such a
    rule nothing is dropped, and nothing has to be loosened.
notes:
  - O(path) names a set of interfaces, in both planes. An interface that an earlier call with the same path has set, and that this
    call does not name, gets its former value back. Use different paths for different interfaces or modes. The run is refused if
    the set of another path keeps an interface at another value. If several sets keep an interface at the same value, the last
    one to release the interface restores its former value.
  - The permanent plane is the file O(path), which systemd-sysctl reads at boot and udev applies to each new interface. It has a
    line for each name, and for each current interface that matches a pattern; no pattern in another file can override these
    lines. It also has the pattern itself, for future interfaces. So the file changes when an interface that matches a pattern
    appears or disappears.
  - Warns if a line in another file would win at the next boot, by the rules of systemd-sysctl and of
    C(sysctl --system), which also reads C(/etc/sysctl.conf).
  - Warns about a name that is not an interface yet, and suggests the interface with the most similar name. With O(immediate),
    warns about a pattern that matches no interface. The permanent plane is written nevertheless. There are no such warnings in a
    root that is not process 1's.
  - Warns about a line in C(/run/kubenode/rp-filter.jsonl) that this collection did not write. The line is ignored. A former value
    that was recorded only there cannot be restored.
  - A run after a boot has nothing to do if the boot has set everything in O(path). On a node without systemd-sysctl it writes
    each interface once more, and reports that as a change.
  - With O(state=absent) an interface gets its former value back if it is still the same interface and has the value that was
    written. After a boot it gets the value from the other files, or else from C(net.ipv4.conf.default.rp_filter). A value that
    another program has changed since stays. The kernel has no way to make a value unwritten again.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._checkpoint
options:
  interfaces:
    description:
      - Names of network interfaces, of 1 to 15 letters, digits and C(_.+@~-), or shell patterns of these and C(*?[]!). The
        interfaces need not exist yet.
      - C(all), C(default) and C(lo) are refused as names, and left out if a pattern matches them.
      - An interface whose own name contains one of C(*?[\=) cannot be named in sysctl.d, where the name would be a pattern or no
        key. It is set only if a pattern matches it, and has no line of its own.
      - Required with O(state=present). With O(state=absent) it has no meaning; everything in the set of O(path) is undone.
    type: list
    elements: str
  mode:
    description:
      - V(off) is 0, V(strict) is 1 (RFC 3704, section 2.2), V(loose) is 2 (RFC 3704, section 2.4).
      - Required with O(state=present).
    type: str
    choices: ['off', strict, loose]
  raise_all:
    description:
      - Whether C(net.ipv4.conf.all.rp_filter) may be changed when it makes O(mode) impossible.
      - C(all) is lowered as far as O(mode) needs. Before that, every other interface, and C(net.ipv4.conf.default.rp_filter) for
        future interfaces, is raised to the value that was effective through C(all). So no other interface's effective value
        changes.
      - In the permanent plane the same is done to the values from other files. Warns about a line in a file that is read later
        and sets a lower value.
      - All of this is undone by O(state=absent), and by a call that does not need it any more.
    type: bool
    default: false
  path:
    description:
      - The file of the permanent plane. Warns if a boot would not read the file. A boot reads files named C(*.conf) in
        C(/etc/sysctl.d) and similar folders; of files with the same name it reads only the one in the first of these folders.
      - Also names the set of interfaces that the call owns, even if O(permanent) is false. So another path is another set, and
        O(state=absent) undoes only the set of O(path).
      - With O(state=present) the file must be in C(/etc/sysctl.d), or in or below a folder that is named C(kubenode) or
        C(kubenode-NAME) and lies in C(/etc), C(/opt), C(/srv) or C(/var/lib), or directly in another folder there that the module
        creates, such as C(/etc/acme). The name of such a folder has letters, digits, C(_) and C(-), and is not one that other
        programs use, such as C(systemd). From other folders, and from a folder that exists already, another program may load or
        execute the file. Each folder on the way must belong to root and be writable by root only, and the folder must not be a
        symbolic link. Otherwise the run is refused.
      - A file that this collection did not write is not overwritten; the run is refused.
    type: path
    default: /etc/sysctl.d/90-kubenode-rp-filter.conf
seealso:
  - name: Ingress Filtering for Multihomed Networks
    description: RFC 3704, which defines strict and loose reverse-path forwarding.
    link: https://www.rfc-editor.org/rfc/rfc3704
  - name: sysctl.d
    description: Which file and which line wins.
    link: https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html
"""

EXAMPLES = r"""
- name: Accept replies on the primary interface, whichever interface the route back uses
  kubenode.datapath.rp_filter:
    interfaces: [eth0]
    mode: loose

- name: Filter strictly on the pods' interfaces, future ones included
  kubenode.datapath.rp_filter:
    interfaces: ["eni*"]
    mode: strict
    path: /etc/sysctl.d/91-kubenode-pods-rp-filter.conf

- name: Do not filter on a VLAN, although net.ipv4.conf.all.rp_filter is set
  kubenode.datapath.rp_filter:
    interfaces: [eth0.100]
    mode: "off"
    raise_all: true

- name: Filter strictly, and roll back if the node cannot be reached any more
  kubenode.datapath.rp_filter:
    interfaces: [eth0]
    mode: strict
    checkpoint: 30

- name: Undo the default set
  kubenode.datapath.rp_filter:
    state: absent
"""

RETURN = r"""
interfaces:
  description:
    - By name, the interfaces that O(interfaces) names or matches, and those that it no longer names or matches, whose former
      value is restored; with O(state=absent), the interfaces that were in the set.
    - In check mode RV(interfaces.NAME.after) has the values that a run would set. Without O(immediate) it has the current values.
  returned: success
  type: dict
  sample:
    eth0:
      before: {value: 0, all: 1, effective: 1}
      after: {value: 2, all: 1, effective: 2}
  contains:
    NAME:
      description: The settings of the interface of this name.
      type: dict
      returned: success
      contains:
        before:
          description: The settings before the run.
          type: dict
          returned: success
          contains: &settings
            value:
              description: The interface's own value, 0, 1 or 2.
              type: int
              returned: success
            all:
              description: The value of C(net.ipv4.conf.all.rp_filter).
              type: int
              returned: success
            effective:
              description: The effective value, the larger of the two.
              type: int
              returned: success
        after:
          description: The settings after the run.
          type: dict
          returned: success
          contains: *settings
diff:
  description: The settings and the file before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("rp_filter")


if __name__ == "__main__":
    main()
