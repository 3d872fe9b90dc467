# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: trace_html
short_description: Write a packet's trace as a page
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Writes a result of M(kubenode.datapath.datapath_trace) as one page of HTML. It says what became of the packet and what helps,
    and draws the paths of the packet and of its reply with the culprit in red, and with what each rule translated.
  - The page has no scripts and loads nothing, and forbids both by its Content-Security-Policy. Texts of the result are escaped.
positional: about
options:
  _input:
    description: The result of the module.
    type: dict
    required: true
  about:
    description:
      - What the page says of the evidence. Keys are C(node), C(time), C(versions) and C(source), each of which may be left out.
        Without C(node) and C(time), the page has those of the snapshot.
      - C(versions) is a text, or a dictionary as RV(kubenode.datapath.datapath_info#module:snapshot.versions) is.
    version_added: 1.0.0
    type: dict
    default: {}
seealso:
  - plugin: kubenode.datapath.trace_text
    plugin_type: filter
  - plugin: kubenode.datapath.trace_mermaid
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the page
  ansible.builtin.copy:
    content: "{{ trace | kubenode.datapath.trace_html(about={'node': inventory_hostname}) }}"
    dest: trace.html
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import trace_page
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted


def trace_html(answer: t.Any, about: t.Any = None) -> str:
    try:
        return untrusted(trace_page.html(answer, about))
    except Refused as error:
        raise AnsibleFilterError(f"trace_html: {error}.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"trace_html": trace_html}
