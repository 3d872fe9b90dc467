#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: datapath_audit
short_description: Say what is wrong with a node's packet path, and which profile it needs
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Looks at a node for what makes Kubernetes nodes lose packets, now or at the next boot, hotplug or upgrade. The page
    C(docs/audit.md) of the collection lists the checks.
  - What a check suspects is tried in a twin of the node, as by M(kubenode.datapath.datapath_trace). A finding has the packet that
    is lost there, and a remedy with which it arrives. A suspicion that the twin refutes is no finding.
  - What cannot be decided, because no output shows what decides, is returned with the commands to ask for.
  - Changes nothing on the node.
notes:
  - Needs root to read a running node. With O(snapshot) or O(dump), it needs only the permission to create user namespaces.
  - A twin has what C(notes) of M(kubenode.datapath.datapath_trace) say. It runs no BPF programs, so that what Cilium does with
    them is judged by the configuration alone.
  - Where a packet needs a Service, it is one that the node has. If none leads to the pod, the twin gets one as kube-proxy would
    make it, and the finding says so. Such a finding is a risk, and no error, on a node without node ports.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._context
options:
  snapshot:
    description:
      - The snapshot of a node, as M(kubenode.datapath.datapath_info) returns it.
      - If this and O(dump) are omitted, the running node is read.
    type: dict
  dump:
    description: Outputs of commands, or a support bundle, as the option O(kubenode.datapath.datapath_trace#module:dump).
    type: raw
  node:
    description: Which node of a bundle of many.
    type: str
  checks:
    description: The checks to make, by their ids or their severities. All, if it is omitted.
    type: list
    elements: str
  assume:
    description:
      - What an operator knows of the node and the evidence does not show, as the option
        O(kubenode.datapath.datapath_trace#module:assume). RV(assumed) repeats it.
    type: dict
    default: {}
  prove:
    description:
      - Whether to try findings and remedies in a twin.
      - Without it, the state of a suspicion that a packet would decide is V(cannot_tell).
    type: bool
    default: true
  print:
    description:
      - Whether the controller prints the findings as text, in colours where Ansible uses colours. Ansible's own report of a
        result quotes texts as JSON does, so that no command can be copied from it.
      - Beside a stdout callback for programs, such as C(ansible.posix.json), the text is printed to stderr. With
        C(no_log), nothing is printed.
    type: bool
    default: false
seealso:
  - module: kubenode.datapath.datapath_trace
  - module: kubenode.datapath.datapath_info
"""

EXAMPLES = r"""
- name: Ask the node what is wrong with it
  kubenode.datapath.datapath_audit:
  register: audit

- name: Print the findings
  ansible.builtin.debug:
    var: audit.findings

- name: Audit a node from its support bundle
  kubenode.datapath.datapath_audit:
    dump: files/eks_i-0123456789abcdef0_2026-11-20.tar.gz
  delegate_to: localhost

- name: Audit a node of Azure whose load balancer probes the health port of kube-proxy
  kubenode.datapath.datapath_audit:
    context: {cloud: azure, probe_mode: shared}

- name: Fail if packets are lost now
  kubenode.datapath.datapath_audit:
    checks: [error]
  register: audit
  failed_when: audit.findings | selectattr('state', 'eq', 'present') | list | length > 0
"""

RETURN = r"""
findings:
  description: What was found, errors first, and at the end what cannot be told.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The check. It never changes.
      type: str
      sample: rp-strict-asymmetric
    subject:
      description: The link, address, rule or setting; V("") if the check as a whole cannot tell. It is the same after a reboot.
      type: str
      sample: eth0
    state:
      description:
        - V(present) or V(cannot_tell).
      type: str
    severity:
      description: V(error) if packets are lost now, V(risk) if they will be at a later event, V(note) for waste.
      type: str
    what:
      description: What is wrong, or what was not observed, in a sentence.
      type: str
    unless:
      description:
        - Sentences about what is open, where the snapshot is incomplete and the finding holds in all that was tried of it. The
          output of C(ask) would make it certain. Empty for a certain finding.
      type: list
      elements: str
      version_added: 1.1.0
    added:
      description: Sentences about what the twin of a finding has besides the node, such as a Service that leads to a pod.
      type: list
      elements: str
      version_added: 1.1.0
    evidence:
      description: Lines as their tools print them.
      type: list
      elements: str
    proof:
      description:
        - V(twin) if a packet was lost in a twin, V(counter) if the kernel counted it, V(configuration) if the configuration alone
          shows it; V("") for V(cannot_tell).
        - Without O(prove), what a packet would show is V(configuration).
      type: str
    packet:
      description:
        - The packet that is lost in the twin, as text that O(kubenode.datapath.datapath_trace#module:packet) takes; V("") without
          one. O(kubenode.datapath.datapath_trace#module:finding) sends it again.
      type: str
      sample: tcp 198.51.100.7:40000 > 10.0.0.4:30080 in eth0
    trace:
      description:
        - What became of that packet, as M(kubenode.datapath.datapath_trace) returns it. C(verdict), C(interface), C(packet),
          C(reason), C(tells_reply), C(culprit), C(culprit_step), C(steps) and C(reply), which has the same of the reply. Null
          without a packet.
        - The filters P(kubenode.datapath.trace_text#filter), P(kubenode.datapath.trace_html#filter) and
          P(kubenode.datapath.trace_mermaid#filter) show it.
      type: dict
    remedy:
      description:
        - C(module) and C(options) of a module of this collection, or C(operator), what an operator has to do, and C(commands).
        - C(task) is the same to paste into a playbook; V("") if there is none. C(profile) is the profile that an operator applies
          by it, if it is one.
        - Null if nothing that was tried helps.
      type: dict
      sample: {module: kubenode.datapath.rp_filter, options: {interfaces: [eth0], mode: loose}}
    ask:
      description:
        - Commands whose output would tell. If the state is V(present), they show what a remedy needs, such as the gateway of an
          interface; V("") if nothing is needed.
      type: str
    source:
      description: A public report, or the source that says so.
      type: str
node:
  description: The C(name) of the node and the C(time) at which the evidence was read; V("") where the evidence does not tell.
  returned: success
  type: dict
  sample: {name: node1, time: 2026-11-29 10:12:00 UTC}
  version_added: 1.1.0
passed:
  description: The ids of the checks that found nothing and lacked nothing.
  returned: success
  type: list
  elements: str
passed_unless:
  description:
    - The checks that found nothing in what a dump shows, where a fact that it leaves open, and that few nodes have, could change
      that. C(id) is the check, C(unless) are sentences about such facts, and C(ask) has commands whose output would tell.
  returned: success
  type: list
  elements: dict
  version_added: 1.1.0
profile:
  description:
    - The profile that mends what was found. C(name) is null if none is needed, or if that cannot be told.
    - C(variables) are those of its role, ready to paste. C(reasons) are sentences. C(open) is true
      if a check that could not tell may show that the node needs one, although C(name) is null.
  returned: success
  type: dict
  sample: {name: aks_dual_stack, variables: {aks_dual_stack_interface: eth0}, reasons: [The probe is not translated.]}
assumed:
  description: The option O(assume), as C(FACT=VALUE).
  returned: success
  type: list
  elements: str
  sample: [nft=shown]
ignored:
  description: Sentences about lines of O(dump) that were not understood.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("datapath_audit")


if __name__ == "__main__":
    main()
