# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: checks
short_description: Parse and check the connection checks of a rollout
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Parses a value from the command line, where every value is a string, and reports errors in it.
positional: hosts
options:
  _input:
    description:
      - Dictionaries with C(address), C(port), and optionally C(from) and C(before), or JSON or YAML text of such a list.
      - Null is an empty list.
    type: raw
    required: true
  hosts:
    description: The hosts of the inventory, one of which may be C(from). V(localhost) may be, too.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Validate the checks
  ansible.builtin.set_fact:
    connections: "{{ kubenode_checks | kubenode.datapath.checks(groups['all']) }}"
"""

RETURN = r"""
_value:
  description: The checks, with the types of their keys.
  type: list
  elements: dict
  sample: [{address: 192.0.2.7, port: 443, from: node2}]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_checks


def checks(value: t.Any, hosts: t.Iterable[str]) -> list[dict[str, t.Any]]:
    try:
        return _connection_checks.read(value, {*hosts})
    except Invalid as error:
        raise AnsibleFilterError(f"{error}. Nothing was changed.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"checks": checks}
