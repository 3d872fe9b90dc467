# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of examples/audit, one for each check, from the checks' own documentation. Run by ``make docs``."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check

FOLDER = Path(__file__).resolve().parents[2] / "examples/audit"
# What an offer of a module becomes: its options from ``offered``, the findings that offer it. A call has all that a file or a
# protocol of this collection is to have, so that calls for one finding each would undo one another.
MENDS = {
    "ebtables_cleanup": {
        "addresses": "{{ offered | map(attribute='remedy.options.addresses', default=[]) | flatten | default(omit, true) }}",
    },
    "network_daemons": {"restart": "{{ offered | map(attribute='remedy.options.restart', default=false) is any }}"},
    "nftables_package": {"service": "{{ offered[0].remedy.options.service }}"},
    "nftables_probe_snat": {"interface": "{{ offered[0].remedy.options.interface }}"},
    "policy_routes": {
        "protocol": "{{ offered[0].remedy.options.protocol | default(omit) }}",
        "rules": "{{ offered | map(attribute='remedy.options.rules', default=[]) | flatten }}",
        "routes": "{{ offered | map(attribute='remedy.options.routes', default=[]) | flatten | default(omit, true) }}",
        "permanent": "{{ offered[0].remedy.options.permanent | default(omit) }}",
    },
    "rp_filter": {
        "interfaces": "{{ offered | map(attribute='remedy.options.interfaces') | flatten | unique }}",
        "mode": "{{ offered[0].remedy.options.mode }}",
    },
}
# Checks whose findings may need calls of their own, by the attribute that tells them apart.
GROUPS = {"own-drift": "subject", "rp-strict-at-boot": "remedy.options.mode"}

HEAD = """---
{about}
- name: Mend {check.id}
  hosts: "{{{{ kubenode_target | default('nodes') }}}}"
  become: true
  gather_facts: false
{variables}  tasks:
    - name: Audit the node
      kubenode.datapath.datapath_audit:
        checks: [{check.id}]
      register: audit

    - name: Print what is left to an operator
      ansible.builtin.debug:
        msg: "{{{{ [item.what, item.remedy.operator | default(item.ask, true)] | join(' ') }}}}"
      loop: "{{{{ audit.findings | rejectattr('remedy.module', 'defined') }}}}"
      loop_control:
        label: "{{{{ item.subject }}}}"
"""
VARIABLES = """  vars:
    offers: "{{ audit.findings | selectattr('remedy.module', 'defined') }}"
"""
MEND = """
    - name: Mend the node by {module}
      kubenode.datapath.{module}:
{options}
      vars:
        offered: "{{{{ offers | selectattr('remedy.module', 'eq', 'kubenode.datapath.{module}') }}}}"
      when: offered | length > 0
"""
MEND_GROUPS = """
    - name: Mend the node by {module}
      kubenode.datapath.{module}:
{options}
      vars:
        offered: "{{{{ item.1 }}}}"
      loop: "{{{{ offers | selectattr('remedy.module', 'eq', 'kubenode.datapath.{module}')
        | groupby('{group}') }}}}"
      loop_control:
        label: "{{{{ item.1 | map(attribute='subject') | join(', ') }}}}"
"""
TAIL = """
    - name: Audit the node again
      kubenode.datapath.datapath_audit:
        checks: [{check.id}]
      register: after
      failed_when: after.findings | selectattr('remedy.module', 'defined') | length > 0
      when: not ansible_check_mode
"""


def text(check: Check) -> str:
    """Return the playbook of a check: what the audit offers is applied, and what is left to an operator is printed."""
    modules = [word for word in dict.fromkeys(re.findall(r"\w+", check.remedy)) if word in MENDS]
    head = HEAD.format(check=check, about=_about(check), variables=VARIABLES if modules else "")
    parts = [head, *(_mend(check, module) for module in modules)]
    return "".join([*parts, TAIL.format(check=check)] if modules else parts)


def _about(check: Check) -> str:
    paragraphs = (f"{check.severity}: {check.trouble}", f"Remedy: {check.remedy}", "Written by make docs; see docs/audit.md.")
    return "\n".join(textwrap.fill(each, 128, initial_indent="# ", subsequent_indent="#   ") for each in paragraphs)


def _mend(check: Check, module: str) -> str:
    options = "\n".join(f'        {name}: "{value}"' for name, value in MENDS[module].items())
    group = GROUPS.get(check.id)
    return (MEND_GROUPS if group else MEND).format(module=module, options=options, group=group)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for check in catalogue.CHECKS:
        (FOLDER / f"{check.id}.yml").write_text(text(check))
