# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: with_checks
short_description: Add a rollout's checks to the packets of a rehearsal
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - A check is a TCP connection that the playbooks make after the change of a node. A rehearsal can send the first packet of
    such a connection through the node's twin before the change.
  - Adds a packet for each check that the node itself makes, and whose address is an IP address. A check that another host makes
    is left out, because the node does not tell by which link its packets come in, and so is one whose address is a name.
options:
  _input:
    description: The packets, as O(kubenode.datapath.datapath_rehearsal#module:packets), or JSON text of them.
    type: raw
    required: true
  checks:
    description:
      - The checks, each with C(address), C(port) and C(from), the host that connects. JSON or YAML text of such a list is
        accepted.
    type: raw
    required: true
  node:
    description: The name of the node in the inventory. A check whose C(from) is this name or is missing is the node's own.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Refuse rules that would make the playbook's checks fail
  kubenode.datapath.datapath_rehearsal:
    changes:
      - policy_routes:
          rules: [{priority: 700, from: 10.0.1.10, table: 1003}]
    packets: "{{ [] | kubenode.datapath.with_checks([{'address': '10.0.1.11', 'port': 8080}], inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The packets, and after them those of the checks.
  type: list
  elements: dict
  sample:
    - {destination: 10.0.1.11, destination_port: 8080}
"""

import typing as t

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit


def with_checks(packets: t.Any, checks: t.Any, node: str) -> list[t.Any]:
    of_node = [check for check in _listed("checks", checks) if isinstance(check, dict) and check.get("from", node) == node]
    sent = [{"destination": check.get("address"), "destination_port": check.get("port")} for check in of_node]
    return [*_listed("packets", packets), *(packet for packet in sent if _is_address(packet["destination"]))]


def _listed(name: str, value: t.Any) -> list[t.Any]:
    try:
        entries = (yaml.safe_load(value) if isinstance(value, str) else value) or []
    except yaml.YAMLError:
        entries = value
    if isinstance(entries, (list, tuple)):
        return [*entries]
    raise AnsibleFilterError(f"{name} is {value!r}; it must be a list, or JSON or YAML text of one")


def _is_address(value: t.Any) -> bool:
    try:
        fields.node(value)
    except Unfit:
        return False
    return True


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"with_checks": with_checks}
