#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rp_filter
short_description: Set IPv4 reverse-path filtering of a node's links, now and for each boot
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - The kernel drops an IPv4 packet whose source it would answer by another link than the one it came in by (V(strict)), or by
    none at all (V(loose)). With policy routing a reply may well come in by the primary link while the route back leads
    elsewhere; strict filtering on the link where it comes in drops it.
  - What counts for a link is its effective value, the larger of C(net.ipv4.conf.all.rp_filter) and the link's own. A wish
    that the former makes impossible is an error, unless O(raise_all) is set.
  - A value that merely reads as wished is not enough. Whoever writes C(net.ipv4.conf.default.rp_filter) also changes
    links whose value was never written. So each link is written once, and that is recorded until the next boot
    under C(/run/kubenode), by the link's index. What systemd-sysctl at boot, or udev when the link came, has written from
    O(path) needs no other write.
  - IPv6 has no such setting. What the kernel's reverse-path lookup does for IPv4 is done there by a rule of nftables,
    C(fib saddr . mark . iif oif missing drop) in a chain of hook prerouting for V(strict), C(fib saddr . mark oif missing drop)
    for V(loose). Without such a rule nothing is dropped, and nothing has to be loosened.
notes:
  - One call owns what O(path) names, in both planes. What an earlier call with the same path has set and this one does
    not name gets back its former value. Calls for different links or modes take different paths; a link that another
    path's call holds at another value is refused. One that several hold at the same value gets back its former value from the
    last of them.
  - The permanent plane is the file O(path), which systemd-sysctl reads at boot and udev applies to each new link. It has a
    line for each name and for each link that matches a pattern, which no pattern in another file can override, and a
    pattern for links to come. So it changes when a link comes or goes that matches a pattern.
  - Warns of a line in another file that would win at the next boot, by the rules of systemd-sysctl and of
    C(sysctl --system), which also reads C(/etc/sysctl.conf).
  - Warns of a name that is no link yet, with the link whose name is nearest, and with O(immediate) of a pattern that matches
    none. The permanent plane is written nevertheless. Nothing is said about links in a root that is not process 1's.
  - Warns of a line in C(/run/kubenode/rp-filter.jsonl) that no run has written. The line is ignored. A value that was
    recorded there alone can not be put back.
  - A run after a boot has nothing to do where the boot has set all that O(path) says. On a node without systemd-sysctl it
    writes each link once more, and reports that as a change.
  - With O(state=absent) a link gets back the value from before if it is still the same link and has the value that was
    written; after a boot, the value that the other files, or else C(net.ipv4.conf.default.rp_filter), give it. What somebody
    else has changed since stays. The kernel has no way to make a value unwritten again.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._checkpoint
options:
  interfaces:
    description:
      - Names of links, of 1 to 15 letters, digits and C(_.+@~-), or shell patterns of these and C(*?[]!). They need not be there.
      - Links only; C(all), C(default) and C(lo) are refused as names and left out where a pattern matches them.
      - A link whose own name contains one of C(*?[\=) can not be written in sysctl.d, where it would be a pattern or no key. It
        is set where a pattern matches it, and has no line of its own.
      - Required with O(state=present). With O(state=absent) it has no meaning; all that belongs to O(path) is undone.
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
      - It is lowered as far as O(mode) needs, after every other link, and C(net.ipv4.conf.default.rp_filter) for links to
        come, was raised to the value that it had by it. No other link's effective value changes.
      - In the permanent plane the same is done to what other files set. Warns of a line in a file that is read later and sets
        less.
      - All of it is undone by O(state=absent), and by a call that does not need it any more.
    type: bool
    default: false
  path:
    description:
      - The file of the permanent plane. Warns when a boot would not read it, as it reads files named C(*.conf) in
        C(/etc/sysctl.d) and its like, and of those with the same name only the one in the first of these folders.
      - Also names the set of links that the call owns, without O(permanent) as well. So another path is another set, and
        O(state=absent) undoes that of O(path) alone.
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
- name: Let replies come in by the primary link, whichever way the route back leads
  kubenode.datapath.rp_filter:
    interfaces: [eth0]
    mode: loose

- name: Filter strictly on the pods' links, those to come included
  kubenode.datapath.rp_filter:
    interfaces: ["eni*"]
    mode: strict
    path: /etc/sysctl.d/91-kubenode-pods-rp-filter.conf

- name: Do not filter on a VLAN, although net.ipv4.conf.all.rp_filter is set
  kubenode.datapath.rp_filter:
    interfaces: [eth0.100]
    mode: "off"
    raise_all: true

- name: Filter strictly, and take it back if the node can not be reached any more
  kubenode.datapath.rp_filter:
    interfaces: [eth0]
    mode: strict
    checkpoint: 30

- name: Undo it
  kubenode.datapath.rp_filter:
    state: absent
"""

RETURN = r"""
interfaces:
  description:
    - The links that O(interfaces) names or matches, with O(state=absent) those that were held, by name.
    - In check mode RV(interfaces.after) is what a run would lead to. Without O(immediate) it is what there is.
  returned: success
  type: dict
  sample:
    eth0:
      before: {value: 0, all: 1, effective: 1}
      after: {value: 2, all: 1, effective: 2}
  contains:
    before:
      description: The settings as they were found.
      type: dict
      returned: success
      contains:
        value:
          description: The link's own value, 0, 1 or 2.
          type: int
          returned: success
        all:
          description: The value of C(net.ipv4.conf.all.rp_filter).
          type: int
          returned: success
        effective:
          description: The value that counts, the larger of the two.
          type: int
          returned: success
    after:
      description: The settings as they are left, like RV(interfaces.before).
      type: dict
      returned: success
diff:
  description: The settings and the file before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""


from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_resource import Checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._module import CHECKPOINT, TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel, managed_files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.sysctl import Sysctl, configuration
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter import boot_record, reverse_path_guards
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.live_reverse_path import (
    RECORDS,
    LiveReversePath,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path import (
    HEADING,
    MODES,
    RP_FILTER,
    Wish,
    sysctl_text,
)

OPTIONS = {
    **TWO_PLANES,
    **CHECKPOINT,
    "interfaces": {"type": "list", "elements": "str"},
    "mode": {"type": "str", "choices": [*MODES]},
    "raise_all": {"type": "bool", "default": False},
    "path": {"type": "path", "default": "/etc/sysctl.d/90-kubenode-rp-filter.conf"},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        path = boot_files.option(module.params["path"], module.is_present)
        desired = Wish.from_options(module.params) if module.is_present else None
        backend, files = Sysctl(), Files()
        # In another root the links are the builder's, not the node's.
        links = backend.links() if kernel.is_own_root() else {}
        found = configuration(module.warn)
        others = {name: text for name, text in found.items() if name != path}
        text = sysctl_text(desired, links, others) if desired else None

        placed = managed_files.ManagedFiles(files, [managed_files.text(path, text, begins=HEADING)])
        changing = placed if module.params["permanent"] else None
        live = LiveReversePath(backend, files, desired, path, configuration=found, file=changing)
        resources: list[Resource] = [live, placed] if desired else [placed, live]
        if links and not module.params["immediate"]:
            resources.insert(0, boot_record.BootRecord(live, placed))
        chosen: list[Guard] = [reverse_path_guards.UnreadableRecord(files, RECORDS[RP_FILTER])] if links else []
        if desired and links:
            later = path if module.params["permanent"] else None
            chosen.append(reverse_path_guards.ReversePathLinks(desired, links, later, module.params["immediate"]))
        if desired and text and module.params["permanent"]:
            chosen.append(reverse_path_guards.BootOrder(desired, path, {**others, path: text}))

        outcome = module.converge(resources, chosen, Checkpoint)
        interfaces = outcome.report(live)
        if interfaces is None:  # the running kernel is left alone: before and after are the same
            settings = live.observe().settings if links else None
            interfaces = live.report(settings, settings) if settings else {}
        result.update(module.report(outcome), interfaces=interfaces)


if __name__ == "__main__":
    main()
