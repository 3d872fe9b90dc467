# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: trace_text
short_description: Show a packet's way as text
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Shows a result of M(kubenode.datapath.datapath_trace) for people - the verdict, the culprit, the way of the packet and of its
    reply, remedies that work, and what was assumed.
options:
  _input:
    description: The result of M(kubenode.datapath.datapath_trace).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the packet's way
  ansible.builtin.debug:
    msg: "{{ (trace | kubenode.datapath.trace_text).splitlines() }}"
"""

RETURN = r"""
_value:
  description: The text, of several lines.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

Found = t.Mapping[str, t.Any]
INDENT = "  "


def trace_text(result: Found) -> str:
    if not isinstance(result, t.Mapping) or "verdict" not in result:
        raise AnsibleFilterError("trace_text needs the result of kubenode.datapath.datapath_trace; the value has no verdict")
    return "\n".join(_lines(result))


def _lines(result: Found) -> t.Iterator[str]:
    before = result.get("before")
    if before:
        yield f"Before: {_verdict(before)}. {before['reason']}"
        yield f"After: {_verdict(result)}. {result['reason']}"
    else:
        yield f"{_verdict(result).capitalize()}. {result['reason']}"
    if result.get("culprit"):
        yield f"Culprit: {result['culprit']['text']}"
    yield from _way("Packet", result)
    if result.get("reply"):
        yield from _way(f"Reply: {result['reply']['verdict']}", result["reply"])
    yield from _listed("Ways by chance", (_branch(one) for one in result.get("branches") or ()))
    yield from _listed("Works", (one["change"] for one in result.get("cures") or ()))
    for title, key in (("Cannot be told", "unknown"), ("Assumed", "assumed"), ("Not understood", "ignored")):
        yield from _listed(title, result.get(key) or ())


def _verdict(found: Found) -> str:
    reply = found.get("reply")
    return f"{found['verdict']}, reply {reply['verdict']}" if reply else str(found["verdict"])


def _way(title: str, found: Found) -> t.Iterator[str]:
    yield from _listed(title, (_step(step) for step in found.get("steps") or ()))


def _step(step: Found) -> str:
    words = [step["kind"], step["where"], step["text"], f"-> {step['verdict']}" if step["verdict"] else ""]
    return INDENT.join(word for word in words if word)


def _branch(one: Found) -> str:
    packet = one.get("packet") or {}
    place = f" {packet['destination']}:{packet.get('destination_port', '')}".rstrip(":") if packet else ""
    return f"{one['share']:.0%} {_verdict(one)}{place}"


def _listed(title: str, entries: t.Iterable[str]) -> t.Iterator[str]:
    lines = [f"{INDENT}{entry}" for entry in entries]
    if lines:
        yield f"{title}:"
        yield from lines


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"trace_text": trace_text}
