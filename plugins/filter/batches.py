# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: batches
short_description: Parse the batches of a rollout for a play's serial
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Parses a value from the command line, where every value is a string, and reports errors in it.
options:
  _input:
    description:
      - How many nodes form a batch, a number or a percentage.
      - Or a list of these, one for each batch. The last entry applies to all further batches.
      - May be text, as V(10), V(25%) or V([1, 25%]).
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Update one node first, and then 25 % of the nodes at a time, unless the user sets batches
  hosts: nodes
  serial: "{{ batches | default([1, '25%']) | kubenode.datapath.batches }}"
"""

RETURN = r"""
_value:
  description: The value for C(serial).
  type: list
  elements: raw
  sample: [1, "25%"]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _batches


def batches(value: t.Any) -> list[str]:
    try:
        return _batches.parse(value)
    except _batches.Unusable as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"batches": batches}
