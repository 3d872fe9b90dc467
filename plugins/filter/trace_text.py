# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: trace_text
short_description: Write a packet's trace as text for a terminal
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Writes a result of M(kubenode.datapath.datapath_trace) as text. It begins with the sentence that says what became of the
    packet. Outputs to ask for and remedies follow, in at most 25 lines, and then the steps of the packet and of its reply. What
    has no room before the steps is below them. A C(!) marks the culprit.
  - Lines are not wrapped, so that rules and tasks can be copied.
  - Control characters in the result are written as Python escapes them, so that a name cannot change the terminal.
positional: colors
options:
  _input:
    description: The result of the module.
    type: dict
    required: true
  colors:
    description: Whether to color verdicts and the culprit, by the escape sequences of ECMA-48.
    type: bool
    default: false
seealso:
  - plugin: kubenode.datapath.trace_html
    plugin_type: filter
  - plugin: kubenode.datapath.trace_mermaid
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write why the packet does not arrive
  ansible.builtin.copy:
    content: "{{ trace | kubenode.datapath.trace_text }}"
    dest: trace.txt
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The text, in lines.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import terminal
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted


def trace_text(answer: t.Any, colors: bool = False) -> str:
    try:
        return untrusted(terminal.trace(answer, colours=colors))
    except Refused as error:
        raise AnsibleFilterError(f"trace_text: {error}.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"trace_text": trace_text}
