# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: trace_mermaid
short_description: Write a packet's trace as a flowchart of Mermaid
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Writes a result of M(kubenode.datapath.datapath_trace) as a flowchart, which GitHub and other sites draw if it is in a code
    block with the language C(mermaid).
  - It has the stages that the packet and its reply passed on the node. Of the rules, it has those that translated the packet, and
    the culprit. Texts of the result are escaped.
options:
  _input:
    description: The result of the module.
    type: dict
    required: true
seealso:
  - plugin: kubenode.datapath.trace_text
    plugin_type: filter
  - plugin: kubenode.datapath.trace_html
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the flowchart
  ansible.builtin.copy:
    content: "{{ trace | kubenode.datapath.trace_mermaid }}"
    dest: trace.mmd
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The flowchart.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted


def trace_mermaid(answer: t.Any) -> str:
    try:
        return untrusted(mermaid.diagram(answer))
    except Refused as error:
        raise AnsibleFilterError(f"trace_mermaid: {error}.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"trace_mermaid": trace_mermaid}
