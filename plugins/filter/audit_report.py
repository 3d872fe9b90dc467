# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: audit_report
short_description: Write the audits of many nodes for programs and for CI
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Writes results of M(kubenode.datapath.datapath_audit) as JSON, as JUnit's XML, as Markdown, or as metrics of Prometheus.
  - The text of a node is escaped as the format demands.
positional: format
options:
  _input:
    description:
      - The results of the module by the names of nodes. A result without C(findings) is that of a node that could not be audited,
        whose C(msg) says why. The result of each node is checked for itself. One that M(kubenode.datapath.datapath_audit) cannot
        have returned is refused, and is that of a node that could not be audited; the report says what was expected.
    type: dict
    required: true
  format:
    description:
      - V(html) is a page that loads nothing. Findings are grouped by check and subject, with their nodes, and can be filtered and
        sorted. The way of a packet that is lost is drawn. With O(earlier), it says what is new, still there, and gone.
      - V(json) is C(format), which is V(1), and C(nodes), the results by node, or C(error) for a node that could not be audited.
        The file C(docs/schema/audit.json) of the collection is its schema.
      - V(junit) has a test suite for each node and a test case for each check. A finding is a failure, and a check that cannot
        tell is skipped.
      - V(markdown) has a table of errors and risks with their nodes.
      - V(prometheus) has C(kubenode_datapath_finding) with the labels C(id), C(severity), C(subject) and C(node),
        C(kubenode_datapath_cannot_tell) with C(id) and C(node), C(kubenode_datapath_audit_timestamp_seconds) with C(node), and
        C(kubenode_datapath_not_audited) with C(node). The text is valid as OpenMetrics, too.
    type: str
    choices: [html, json, junit, markdown, prometheus]
    required: true
  earlier:
    description: The results of an earlier run, in the form of the input, or C(nodes) of its JSON. For V(html) only.
    type: dict
seealso:
  - plugin: kubenode.datapath.audit_text
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write metrics for the node exporter
  ansible.builtin.copy:
    content: "{{ {inventory_hostname: audit} | kubenode.datapath.audit_report('prometheus') }}"
    dest: /var/lib/node_exporter/kubenode_datapath.prom
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of a file.
  type: str
"""

import time
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import audit_page, findings, junit, markdown, prometheus
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted

FORMATS: dict[str, t.Callable[[object], str]] = {
    "html": audit_page.text,
    "json": findings.as_json,
    "junit": junit.text,
    "markdown": markdown.text,
    "prometheus": lambda results: prometheus.text(results, int(time.time())),
}


def audit_report(results: t.Any, format: str, earlier: t.Any = None) -> str:
    if format not in FORMATS:
        raise AnsibleFilterError(f"audit_report: format must be one of {', '.join(FORMATS)}; {format!r} was given.")
    if earlier is not None and format != "html":
        raise AnsibleFilterError(f"audit_report: earlier must be left out for the format {format}: only html compares runs.")
    try:
        return untrusted(audit_page.text(results, earlier) if earlier is not None else FORMATS[format](results))
    except Refused as error:
        raise AnsibleFilterError(f"audit_report: {error}.") from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"audit_report": audit_report}
