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
  - Rules of one priority are held in the order of O(rules). A rule that has to move is added at its new place before it is
    removed from the former, so that no packet misses it. Rules of which no packet can meet two, as those for pods with an
    address each, have no order, nor have rules of different priorities.
  - A rule or route with attributes that this module does not know (C(dscp), nexthop objects, C(advmss), encapsulations) is
    foreign, whatever protocol it carries. It is never changed, it satisfies nothing, and where it has the key of one to be
    added, that is refused with its name. One exception is made for a rule with O(protocol) that stands before one of ours which
    has to go and which the kernel would take it for. It is added again as it is, behind the others of its priority, before ours
    is removed.
  - If the kernel refuses one, all that was changed is undone, and the error names it and what the kernel said.
requirements:
  - pyroute2 0.7.2 or newer, on the node or on the controller. Where the node has none, the controller's is carried to
    C(/var/lib/kubenode/lib), readable by root alone, once; O(state=absent) of the last set removes it.
notes:
  - The permanent plane is the file O(path), a program beside it (C(PATH.pyz)) and the unit
    C(kubenode-policy-routes-PROTOCOL.service), enabled, which loads the file before kubelet starts and then stays.
    With O(immediate=true), the unit is also started where systemd runs, and restarted when its program has changed. The run
    waits until it is active; a unit that fails fails the run, with the last lines of its journal. While the node still boots, a
    start that systemd has queued is not waited for; a warning says so. A unit that is starting already is waited for in check
    mode as well, for 240 seconds at most.
  - The unit names the Python that runs this module, if it will be there at boot and only root can replace it, or else another
    of the node's that is 3.9 or newer. It is kept while it lasts, so a run by another Python changes nothing. A run that
    changes anything that the next boot loads rehearses the program with it.
  - The unit restores within two seconds what is lost of the set, through other programs or with a link or address, and loads
    what waits for a link when the link comes. Its journal says what was lost and who took it. When a program keeps
    removing it, the pauses between restorations grow to five minutes; what goes with a link or an address never waits for that.
  - While a run moves or removes the file, C(kubenode-policy-routes-PROTOCOL.service.files) beside the unit names the paths
    that are concerned. A run that was killed leaves this record, and the next run completes or undoes what it had begun.
  - With O(permanent=false), the unit, where there is one, holds what the run has left, until the next boot. That is recorded in
    C(/run/kubenode/policy-routes-PROTOCOL.json), part of the immediate plane.
  - systemd-networkd removes rules that it did not make whenever it configures a link, unless
    C(ManageForeignRoutingPolicyRules=no) is set in C(networkd.conf). The unit brings them back, a moment later.
  - The kernel adds a rule behind all others of its priority. One of ours that moves, or that comes back when a change is undone,
    stands behind foreign rules of that priority; a roll-back that can not restore an order which makes a difference says so.
    Where a foreign rule that satisfies the wish stands before one of ours which O(rules) lists before it, and a packet could
    tell, that is refused.
  - The kernel makes one IPv6 route with several next hops of two that have gateways and the same table, prefix and metric.
    When another program appends one (C(ip -6 route append)) to a route of ours, its next hop becomes a part of our route, under
    our protocol, and the next run removes it with the route that it became a part of. Give it a metric or table of its own.
  - Gateways that can not be one (a broadcast or multicast address, an address of the node) and sources that are no address of the
    node are found in check mode too.
  - Warns when a priority, table or mark is one that a known CNI or cloud agent uses for something else.
  - Thousands of rules are best given as JSON text, as C(rules={{ my_rules | to_json }}) does. Ansible itself takes a tenth of
    a millisecond for each entry of a list.
  - Numbers in O(rules) and O(routes) may be given in decimal or, with C(0x), in hexadecimal.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._checkpoint
options:
  enis:
    description:
      - Has the rules and routes follow from the elastic network interfaces (ENIs) that the node turns out to have. Each boot asks
        the metadata service for them, and so does the unit when a card is plugged in or goes.
      - What is held then is what M(kubenode.datapath.imds_info) and the filter P(kubenode.datapath.eni_policy#filter) give with
        the same layout. O(rules) and O(routes) may tell both lists for the running kernel; where they are left out, the run asks
        itself, unless O(immediate) is false.
      - kubelet waits at a boot for the metadata, 20 seconds at most. What is missing then, and the table of an ENI that the
        metadata does not describe yet, is asked for again after 1, 2, 4 and more seconds. For a card that the metadata does not
        name that ends after two minutes. A silent service is asked on, at last every five minutes, and nothing is taken
        away for its silence.
      - A later run without it has the boots load what that run lists.
      - With O(state=absent) it makes no difference.
      - May be given as JSON text.
    type: dict
    suboptions:
      layout:
        description:
          - Whose priorities, tables and marks are taken; see the filter P(kubenode.datapath.eni_policy#filter).
          - With V(custom), an ENI's table is 1000 plus the link's index.
        type: str
        choices: [aws_vpc_cni, cilium, terway, custom]
        required: true
      cloud:
        description:
          - The cloud whose metadata service is asked, as O(kubenode.datapath.imds_info#module:cloud).
          - V(aws_vpc_cni) and V(cilium) need device numbers, which AWS alone tells.
        type: str
        choices: [auto, azure, aws, alibaba]
        default: auto
      mark:
        description: For V(custom), V(MARK) or V(MARK/MASK) of what leaves by the primary ENI. The default is V(0x80/0x80).
        type: str
      priorities:
        description: For V(custom), priorities of rules, as the filter P(kubenode.datapath.eni_policy#filter) takes them.
        type: dict
      pod_interfaces:
        description:
          - What the node's ends of pods' links are called, names or the beginning of names with V(*) after it. When one of
            these comes, nobody asks for it. The default is what the layout's CNI calls them.
          - V(custom) has none by default, and then asks for each veth that comes.
        type: list
        elements: str
  rules:
    description:
      - The rules. At least one of O(rules), O(routes) and O(enis) is required with O(state=present).
      - A list that is left out is not managed. V([]) removes all rules of O(protocol).
      - With O(state=absent), the listed ones go; without O(rules) and O(routes), all that carry O(protocol).
      - Rules of one priority are held in the order given. The first that applies to a packet decides.
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
          - The gateway. A route of another program, or one of O(routes), must say that it is a neighbour on O(routes[].dev),
            unless O(routes[].onlink) is true or it is a link-local address.
        type: str
      dev:
        description:
          - The link. It must be there.
          - With O(routes[].via) it may be left out. The gateway is then looked for as the kernel does it, among the neighbours
            that routes of the same table tell of, then those of the table main; the longest prefix decides, then the lowest
            metric. There must be one link. The next boot looks anew.
          - Required by V(local), by V(unicast) without O(routes[].via), with O(routes[].onlink), and with a link-local gateway.
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
        description:
          - Two or more next hops that share the traffic, instead of O(routes[].via) and O(routes[].dev).
          - With IPv6 each needs O(routes[].nexthops[].via).
        type: list
        elements: dict
        suboptions:
          dev:
            description: As O(routes[].dev).
            type: str
          via:
            description: As O(routes[].via).
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
      - The file that the next boot loads, V(/etc/kubenode/policy-routes-PROTOCOL.json) by default. Where the unit loads another
        one, from an earlier run, that is removed. O(state=absent) finds the file of O(protocol) at any path.
      - Its folder is created when its parent is there, and removed with the last file in it when it was created so.
    type: path
"""

EXAMPLES = r"""
- name: Route what a pod sends by the interface that carries its address
  kubenode.datapath.policy_routes:
    routes:
      - {table: 1003, to: 10.0.1.1/32, dev: eth1}
      - {table: 1003, to: default, via: 10.0.1.1}
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

- name: Prepare an image for nodes whose ENIs only they will know
  kubenode.datapath.policy_routes:
    immediate: false
    enis:
      layout: aws_vpc_cni

- name: Prepare an image, in the chroot that builds it
  kubenode.datapath.policy_routes:
    immediate: false
    rules: "{{ node_rules }}"

- name: Take the rules back if the controller can not reach the node through them
  kubenode.datapath.policy_routes:
    rules: "{{ node_rules }}"
    checkpoint: 30

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
      description:
        - Rules that were added, as C(ip rule) prints them.
        - A rule that moves is also in RV(rules.removed), and not in RV(rules.kept).
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
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_resource import Checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.layout_guards import CniLayouts
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard, Plane, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.boot_policy import BootPolicy
from ansible_collections.kubenode.datapath.plugins.module_utils._module import CHECKPOINT, TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.carried_library import CarriedLibrary
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import PYROUTE2
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_tables_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.live_policy import LivePolicy, Report
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.policy import Policy
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

OPTIONS = {
    **TWO_PLANES,
    **CHECKPOINT,
    "enis": {
        "type": "dict",
        "options": {
            "layout": {"type": "str", "choices": ["aws_vpc_cni", "cilium", "terway", "custom"], "required": True},
            "cloud": {"type": "str", "choices": ["auto", "azure", "aws", "alibaba"], "default": "auto"},
            "mark": {"type": "str"},
            "priorities": {"type": "dict"},
            "pod_interfaces": {"type": "list", "elements": "str"},
        },
    },
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
                    "dev": {"type": "str"},
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
        tables, systemd, is_permanent = (
            rt_tables_backend.tables(),
            Units(module.run, module.warn),
            module.params["permanent"],
        )
        listed = _listed(module, tables)
        path = boot_files.option(
            module.params["path"] or f"/etc/kubenode/policy-routes-{listed.protocol}.json", module.is_present
        )

        boot = BootPolicy(Files(), systemd, listed.protocol, path, tables)
        unmanaged = _unmanaged(listed, module)
        kept = _after(listed, boot.kept(unmanaged if is_permanent else []), module).for_boot()
        active = _after(listed, boot.active(unmanaged), module)

        live = LivePolicy(Netlink(), listed, module.is_present)
        record = boot.record(active, not kept.is_empty if is_permanent else boot.has_listener)
        library = _library(is_permanent and not kept.is_empty, systemd, boot.unit, module)
        placed = boot.resources(kept, starts=module.params["immediate"]) if is_permanent else []
        if is_permanent and kept.is_empty and module.params["immediate"]:
            placed.append(boot.record_gone())
        # What the boot needs comes first, so that it is asked for before anything is changed; and goes when nobody needs it.
        resources: list[Resource] = [*([library] if library.is_desired else []), live, record, *placed]
        resources += [] if library.is_desired or not kept.is_empty else [library]
        outcome = module.converge(resources, _guards(listed, module), Checkpoint)
        done = outcome.report(live) or Report()
        result.update(module.report(outcome), rules=done.rules.report(), routes=done.routes.report())


def _unmanaged(listed: Policy, module: Module) -> list[str]:
    """The lists of which this run leaves something as it is, so that it has to be known."""
    if module.is_present:
        return listed.left_out
    return [] if len(listed.left_out) == 2 else ["rules", "routes"]


def _listed(module: Module, tables: t.Mapping[str, int]) -> Policy:
    """What the options tell; and what follows from the node's ENIs, where that is to be in force now and is not told."""
    listed = policy.from_options(module.params["protocol"], module.entries("rules"), module.entries("routes"), tables)
    if module.params["enis"]:
        return _of_enis(module, listed, tables)
    if module.is_present and len(listed.left_out) == 2:
        raise Invalid("rules", None, "given where state is present, or routes, or enis")
    return listed


def _of_enis(module: Module, listed: Policy, tables: t.Mapping[str, int]) -> Policy:
    """What the ENIs that the metadata names ask for. Raises NoMetadata, and Failure where it has not all of one of them."""
    # Imported here, as most sets are told, and then do not wait for it.
    from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import enis_backend as backend
    from ansible_collections.kubenode.datapath.plugins.module_utils._listener import discovery

    enis, left_out = discovery.from_option(module.params["enis"]), listed.left_out
    if not module.is_present:
        return listed
    if len(left_out) == 1:
        raise Invalid(left_out[0], None, "given where enis and the other list are, as both follow from the ENIs")
    if left_out and module.params["immediate"]:
        _cloud, interfaces = backend.read(enis["cloud"])
        found = discovery.found(enis, interfaces)
        if found.unfit:
            raise Failure(
                f"the metadata has not all of what is plugged in: {'; '.join(found.unfit.values())}. Nothing was changed."
            )
        listed = policy.from_options(listed.protocol, found.rules, found.routes, tables)
    return listed._replace(enis=enis)


def _after(listed: Policy, former: Policy, module: Module) -> Policy:
    """What is wished after this run. Lists that nobody named are nobody's, but after absent without lists they are empty."""
    if module.is_present:
        return listed.over(former)
    left = former.without(listed)
    return left._replace(rules=(), routes=()) if listed.rules is None and listed.routes is None else left


def _library(desired: bool, systemd: Units, unit: str, module: Module) -> CarriedLibrary:
    """pyroute2, for the boot. A run that only changes the running kernel asks for it when it has something to change."""
    going = {unit} if module.params["permanent"] else set()
    return CarriedLibrary(
        PYROUTE2,
        desired,
        is_needed=lambda: bool(systemd.named("kubenode-policy-routes-*.service") - going),
        plane=Plane.PERMANENT if module.params["permanent"] else Plane.IMMEDIATE,
    )


def _guards(listed: Policy, module: Module) -> list[Guard]:
    return [CniLayouts(listed)] if module.is_present else []


if __name__ == "__main__":
    main()
