#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: policy_routes
short_description: Hold a set of policy rules and routes on a Kubernetes node
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Holds whole sets of policy rules (C(ip rule)) and routes of both families, in one pass through netlink; routes come before
    the rules that need them, rules go before the routes that they needed.
  - What is ours is known by its routing protocol, O(protocol). What carries it and is not listed goes; what carries another
    one is never changed, whatever it says.
  - Rules and routes are compared by meaning. A rule that another program holds under its own protocol satisfies the wish; it is
    reported in RV(rules.satisfied_by), nothing is added, and O(state=absent) leaves it. One with the same priority and
    selector, or a route with the same table, prefix and metric, that means something else is refused with the name of its
    owner.
  - A rule or route with attributes that this module does not know (C(dscp), nexthop objects, encapsulations) is left alone.
  - If the kernel refuses one, all that was changed is undone, and the error names it and what the kernel said.
requirements:
  - pyroute2 0.7.2 or newer, on the node or on the controller. Where the node has none, the controller's is carried to
    C(/var/lib/kubenode/lib), readable by root alone, once; O(state=absent) of the last set removes it.
notes:
  - The permanent plane is the file O(path), a program beside it (C(PATH.pyz)) and the unit
    C(kubenode-policy-routes-PROTOCOL.service), enabled, which loads the file before kubelet starts. The unit is neither started
    nor stopped by this module.
  - Rules and routes over a link that goes down or away are not put back before the next run or boot.
  - systemd-networkd removes rules that it did not make whenever it configures a link, unless
    C(ManageForeignRoutingPolicyRules=no) is set in C(networkd.conf).
  - Warns when a priority, table or mark is one that a known CNI or cloud agent uses for something else.
  - Thousands of rules are best given as JSON text, as C(rules={{ my_rules | to_json }}) does. Ansible itself takes a tenth of
    a millisecond for each entry of a list.
  - Numbers may be given in decimal or, with C(0x), in hexadecimal.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
options:
  rules:
    description:
      - The rules. At least one of O(rules) and O(routes) is required with O(state=present).
      - A list that is left out is not managed. V([]) removes all rules of O(protocol).
      - With O(state=absent), the listed ones go; without O(rules) and O(routes), all that carry O(protocol).
      - Rules of one priority are added in the order given.
      - May be given as JSON text.
    type: list
    elements: dict
    suboptions:
      priority:
        description: Place among the rules, from 1 to 4294967295; the lowest comes first.
        type: int
        required: true
      family:
        description: By default that of O(rules[].from) and O(rules[].to), or V(ipv4) where there is neither.
        type: str
        choices: [ipv4, ipv6]
      from:
        description: Source prefix.
        type: str
      to:
        description: Destination prefix.
        type: str
      iif:
        description: The link by which a packet came in. It need not be there yet.
        type: str
      oif:
        description: The link that a socket is bound to. It need not be there yet.
        type: str
      fwmark:
        description: V(MARK) or V(MARK/MASK), as V(0x80/0x80). Without a mask all bits count.
        type: str
      tos:
        description: Type of service, as V(0x10).
        type: str
      ipproto:
        description: An IP protocol, by number or as V(icmp), V(tcp), V(udp), V(gre), V(esp), V(ah), V(ipv6-icmp) or V(sctp).
        type: str
      sport:
        description: A source port or a range V(N-M), from 1 to 65534.
        type: str
      dport:
        description: A destination port or a range V(N-M), from 1 to 65534.
        type: str
      uidrange:
        description: A user's number or a range V(N-M), for sockets of the node itself.
        type: str
      l3mdev:
        description: Whether the rule is about links in a VRF, and looks up the VRF's table.
        type: bool
      not:
        description: Whether the rule applies to packets that the selector does not match.
        type: bool
      action:
        description:
          - What is done with a packet.
          - The default is V(goto) where O(rules[].goto) is given, else V(lookup).
        type: str
        choices: [lookup, goto, blackhole, unreachable, prohibit]
      table:
        description: The table to look up, a number or a name that the node knows (C(rt_tables)). Required by V(lookup).
        type: str
      goto:
        description: Priority of the rule to go on with, above O(rules[].priority). A rule must be there.
        type: int
      suppress_prefixlength:
        description:
          - Pass over a route that the table gives when its prefix is this long or shorter, as V(0) does over default routes.
        type: int
  routes:
    description:
      - The routes. What is said of O(rules) about lists that are left out or empty holds here too.
      - May be given as JSON text.
    type: list
    elements: dict
    suboptions:
      table:
        description: The table, a number or a name that the node knows (C(rt_tables)).
        type: str
        required: true
      to:
        description: Destination prefix, or V(default).
        type: str
        required: true
      family:
        description: By default that of the addresses, or V(ipv4) where there is none.
        type: str
        choices: [ipv4, ipv6]
      type:
        description: What is done with a packet. The default is V(unicast).
        type: str
        choices: [unicast, local, blackhole, unreachable, prohibit, throw]
      via:
        description:
          - The gateway. A route of the node, or one of O(routes), must say that it is a neighbour on O(routes[].dev), unless
            O(routes[].onlink) is true or it is a link-local address.
        type: str
      dev:
        description: The link. Required by V(unicast) and V(local), unless O(routes[].nexthops) is given. It must be there.
        type: str
      onlink:
        description: Whether the gateway is to be taken for a neighbour on the link, though no route says so.
        type: bool
      scope:
        description: Scope of an IPv4 route. By default V(global) with a gateway, V(link) without one, V(host) for V(local).
        type: str
        choices: [global, site, link, host]
      src:
        description: Preferred source address, one of the node's.
        type: str
      metric:
        description: Which of several routes to a prefix is taken; the lowest. By default V(0), or V(1024) for IPv6.
        type: int
      mtu:
        description: Path MTU, from 68 to 65535.
        type: int
      nexthops:
        description: Two or more next hops that share the traffic, instead of O(routes[].via) and O(routes[].dev).
        type: list
        elements: dict
        suboptions:
          dev:
            description: The link.
            type: str
            required: true
          via:
            description: The gateway.
            type: str
          onlink:
            description: As O(routes[].onlink).
            type: bool
          weight:
            description: Share of the traffic, from 1 to 256.
            type: int
            default: 1
  protocol:
    description:
      - Routing protocol number of what is ours, from 1 to 255. A second set on a node takes another one.
      - Numbers of the kernel and of routing daemons are refused; see C(/etc/iproute2/rt_protos).
    type: int
    default: 75
  path:
    description:
      - The file that the next boot loads, V(/etc/kubenode/policy-routes-PROTOCOL.json) by default.
      - Its folder is created when its parent is there, and removed with the last file in it when it was created so.
    type: path
"""

EXAMPLES = r"""
- name: Route what a pod sends by the interface that carries its address
  kubenode.datapath.policy_routes:
    routes:
      - {table: 1003, to: 10.0.1.1/32, dev: eth1}
      - {table: 1003, to: default, via: 10.0.1.1, dev: eth1}
    rules:
      - {priority: 1300, to: 10.0.1.5, table: main}
      - {priority: 2300, from: 10.0.1.5, table: 1003}

- name: Send replies of node ports back the way their requests came, both families
  kubenode.datapath.policy_routes:
    protocol: 76
    rules:
      - {priority: 1200, fwmark: 0x80/0x80, table: main}
      - {priority: 1200, fwmark: 0x80/0x80, table: main, family: ipv6}

- name: Give thousands of rules as text
  kubenode.datapath.policy_routes:
    rules: "{{ pod_rules | to_json }}"

- name: Prepare an image, in the chroot that builds it
  kubenode.datapath.policy_routes:
    immediate: false
    rules: "{{ node_rules }}"

- name: Remove one rule, whatever else is there
  kubenode.datapath.policy_routes:
    state: absent
    rules:
      - {priority: 1300, to: 10.0.1.5, table: main}

- name: Undo all of it
  kubenode.datapath.policy_routes:
    state: absent
"""

RETURN = r"""
rules:
  description: What became, or in check mode would become, of the running kernel's rules. Nothing where O(immediate) is false.
  returned: success
  type: dict
  contains:
    added:
      description: Rules that were added, as C(ip rule) prints them.
      type: list
      elements: str
      sample: ["ip rule 2300: from 10.0.1.5 lookup 1003"]
    removed:
      description: Rules that were removed.
      type: list
      elements: str
    kept:
      description: How many rules of O(protocol) were there and stay.
      type: int
    satisfied_by:
      description: Rules that were not added, as another program holds the same, with its protocol.
      type: list
      elements: str
      sample: ["ip rule 1024: from all fwmark 0x80/0x80 lookup main (protocol kernel)"]
routes:
  description: The same for routes. A route that took the place of another is in both lists.
  returned: success
  type: dict
  contains:
    added:
      description: Routes that were added, as C(ip route) prints them.
      type: list
      elements: str
      sample: ["ip route default via 10.0.1.1 dev eth1 table 1003"]
    removed:
      description: Routes that were removed.
      type: list
      elements: str
    kept:
      description: How many routes of O(protocol) were there and stay.
      type: int
    satisfied_by:
      description: Routes that were not added, as another program holds the same, with its protocol.
      type: list
      elements: str
diff:
  description: The rules and routes that go and come, and the files before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

import gc

from ansible_collections.kubenode.datapath.plugins.module_utils._agent import routes
from ansible_collections.kubenode.datapath.plugins.module_utils._converge import Guard, Plane, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._model import boot_unit, names, policy
from ansible_collections.kubenode.datapath.plugins.module_utils._model.policy import Policy
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._module import TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.boot_program import archive
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.carried_library import CarriedLibrary
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.cni_layouts import CniLayouts
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.enabled_unit import EnabledUnit
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.managed_files import ManagedFiles, text
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.policy_state import PolicyState
from ansible_collections.kubenode.datapath.plugins.module_utils._system import rt_tables
from ansible_collections.kubenode.datapath.plugins.module_utils._system.files import Content, Files
from ansible_collections.kubenode.datapath.plugins.module_utils._system.library import PYROUTE2
from ansible_collections.kubenode.datapath.plugins.module_utils._system.netlink import Netlink
from ansible_collections.kubenode.datapath.plugins.module_utils._system.process import find
from ansible_collections.kubenode.datapath.plugins.module_utils._system.units import Units

OPTIONS = {
    **TWO_PLANES,
    "rules": {
        "type": "list",
        "elements": "dict",
        "options": {
            "priority": {"type": "int", "required": True},
            "family": {"type": "str", "choices": ["ipv4", "ipv6"]},
            "from": {"type": "str"},
            "to": {"type": "str"},
            "iif": {"type": "str"},
            "oif": {"type": "str"},
            "fwmark": {"type": "str"},
            "tos": {"type": "str"},
            "ipproto": {"type": "str"},
            "sport": {"type": "str"},
            "dport": {"type": "str"},
            "uidrange": {"type": "str"},
            "l3mdev": {"type": "bool"},
            "not": {"type": "bool"},
            "action": {"type": "str", "choices": ["lookup", "goto", "blackhole", "unreachable", "prohibit"]},
            "table": {"type": "str"},
            "goto": {"type": "int"},
            "suppress_prefixlength": {"type": "int"},
        },
    },
    "routes": {
        "type": "list",
        "elements": "dict",
        "options": {
            "table": {"type": "str", "required": True},
            "to": {"type": "str", "required": True},
            "family": {"type": "str", "choices": ["ipv4", "ipv6"]},
            "type": {"type": "str", "choices": ["unicast", "local", "blackhole", "unreachable", "prohibit", "throw"]},
            "via": {"type": "str"},
            "dev": {"type": "str"},
            "onlink": {"type": "bool"},
            "scope": {"type": "str", "choices": ["global", "site", "link", "host"]},
            "src": {"type": "str"},
            "metric": {"type": "int"},
            "mtu": {"type": "int"},
            "nexthops": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "dev": {"type": "str", "required": True},
                    "via": {"type": "str"},
                    "onlink": {"type": "bool"},
                    "weight": {"type": "int", "default": 1},
                },
            },
        },
    },
    "protocol": {"type": "int", "default": 75},
    "path": {"type": "path"},
}


def main() -> None:
    gc.disable()  # nothing here refers to itself, and 20,000 rules would be looked through again and again
    module = Module(OPTIONS, long_lists=("rules", "routes"))
    with module.reporting() as result:
        tables, files = rt_tables.tables(), Files()
        listed = policy.from_options(
            module.params["protocol"], module.entries("rules"), module.entries("routes"), tables
        )
        if module.is_present and listed.rules is None and listed.routes is None:
            raise Invalid("rules", None, "given where state is present, or routes")
        path = names.path("path", module.params["path"] or f"/etc/kubenode/policy-routes-{listed.protocol}.json")
        unmanaged = [name for name in ("rules", "routes") if getattr(listed, name) is None or not module.is_present]
        former = _former(files, path, listed.protocol, tables, unmanaged if module.params["permanent"] else [])
        kept = listed.over(former) if module.is_present else former.without(listed)

        units = Units(module.run)
        unit = boot_unit.loading_routes(listed.protocol, path, find("python3") or "python3", f"{path}.pyz")
        live = PolicyState(Netlink(), listed, module.is_present)
        library = _library(module, kept, units, unit)
        placed = _placed(files, units, kept, path, unit) if module.params["permanent"] else []
        # What the boot needs comes first, so that it is asked for before anything is changed; and goes when nobody needs it.
        resources: list[Resource] = [*([library] if library.is_wished else []), live, *placed]
        resources += [] if library.is_wished or not kept.is_empty else [library]
        outcome = module.converge(resources, _guards(listed, module))
        result.update(module.report(outcome), rules=live.rules.report(), routes=live.routes.report())


def _former(files: Files, path: str, protocol: int, tables: dict[str, int], lists: list[str]) -> Policy:
    """What an earlier run left in the file: a list that this run does not manage stays in it."""
    found = files.read(path)
    if not isinstance(found, Content):
        return Policy(protocol)
    try:
        former = policy.from_text(found.text, tables, lists)
    except Invalid:
        return Policy(protocol)  # not what we wrote: whether it may be overwritten is ManagedFiles' to say
    if former.protocol != protocol:
        raise Invalid("path", path, f"another file: this one keeps the set of protocol {former.protocol}")
    return former


def _placed(files: Files, units: Units, kept: Policy, path: str, unit: boot_unit.BootUnit) -> list[Resource]:
    """The file, and the program and the unit that load it at the next boot."""
    is_placed = not kept.is_empty
    texts = {path: kept.text() if is_placed else None, f"{path}.pyz": archive(routes) if is_placed else None}
    placed = ManagedFiles(files, [text(name, wish) for name, wish in texts.items()])
    enabled = EnabledUnit(files, units, unit, wish=is_placed, starts=False)  # the run has done what it would do
    return [placed, enabled] if is_placed else [enabled, placed]


def _library(module: Module, kept: Policy, units: Units, unit: boot_unit.BootUnit) -> CarriedLibrary:
    """pyroute2, for the boot. A run that only changes the running kernel asks for it when it has something to change."""
    is_permanent = module.params["permanent"]
    going = {unit.name} if is_permanent else set()
    return CarriedLibrary(
        PYROUTE2,
        wish=is_permanent and not kept.is_empty,
        is_needed=lambda: bool(units.named("kubenode-policy-routes-*.service") - going),
        plane=Plane.PERMANENT if is_permanent else Plane.IMMEDIATE,
    )


def _guards(listed: Policy, module: Module) -> list[Guard]:
    return [CniLayouts(listed)] if module.is_present else []


if __name__ == "__main__":
    main()
