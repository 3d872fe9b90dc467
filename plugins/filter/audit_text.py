# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: audit_text
short_description: Write the findings of an audit as text for a terminal
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Writes a result of M(kubenode.datapath.datapath_audit) as text. Findings come first, errors before risks and notes, then the
    checks that cannot tell, and at the end the profile that the node needs with its variables as YAML.
  - Lines are not wrapped, so that tasks and variables can be copied.
  - Control characters in the result are written as Python escapes them, so that a name cannot change the terminal.
positional: colors
options:
  _input:
    description: The result of the module.
    type: dict
    required: true
  colors:
    description: Whether to color severities and titles, by the escape sequences of ECMA-48.
    type: bool
    default: false
seealso:
  - plugin: kubenode.datapath.audit_report
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Print what is wrong with the node
  ansible.builtin.debug:
    msg: "{{ (audit | kubenode.datapath.audit_text).splitlines() }}"
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


def audit_text(result: t.Any, colors: bool = False) -> str:
    try:
        return untrusted(terminal.audit(result, colours=colors))
    except Refused as error:
        raise AnsibleFilterError(f"audit_text: {error}.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"audit_text": audit_text}
