# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which profile a node needs, with the variables of its role, or why it needs none."""

from __future__ import annotations

import typing as t

from .._cni import cni
from . import catalogue
from .node import Node
from .suspicion import NOTE, PRESENT, Finding, Unobserved

# By profile, the checks whose findings it mends.
MENDED = {
    "aks_dual_stack": ("probe-untranslated",),
    "eni_policy_routing": ("rp-strict-asymmetric", "reply-by-other-interface", "mark-without-rule", "rp-strict-at-boot"),
    "cilium_migration": ("ebtables-stale", "neighbor-moved"),
    "symmetric_routing": ("service-reply-by-default",),
}


class Need(t.NamedTuple):
    """name: of a profile, empty for none. variables: of its role. reasons: sentences. is_open: whether the node may need one,
    although it has no name.
    """

    name: str
    variables: t.Mapping[str, t.Any]
    reasons: tuple[str, ...]
    is_open: bool = False

    def plain(self) -> dict[str, t.Any]:
        variables = {f"{self.name}_{name}": value for name, value in self.variables.items()}
        return {"name": self.name or None, "variables": variables, "reasons": [*self.reasons], "open": self.is_open}


def of(node: Node, findings: t.Sequence[Finding], checks: t.Collection[str]) -> Need:
    """Return what a node needs, by what an audit found. A profile is needed for what it mends, and for nothing else.

    checks: the ids of those that the audit made.
    """
    for name, mended in MENDED.items():
        present = [
            finding for finding in findings if finding.state == PRESENT and finding.id in mended and not _is_lowered(finding)
        ]
        reasons = tuple(finding.what for finding in present)
        questions = dict.fromkeys(finding.ask for finding in present if finding.ask and not finding.unless)
        if questions:
            return Need(name, {}, (*reasons, f"The variables are open. The output of this would tell: {'; '.join(questions)}."))
        tried = {
            repr(each.remedy.options): each.remedy.options for each in present if each.remedy and each.remedy.profile == name
        }
        if len(tried) > 1:
            return Need(name, {}, (*reasons, "The variables are open: each of these findings has others, as its task says."))
        if reasons:
            try:
                variables = next(iter(tried.values()), None) or _VARIABLES[name](node)
            except Unobserved as lack:
                return Need(name, {}, (*reasons, f"The variables are open: {lack.what}"))
            if variables is not None:
                return Need(name, variables, reasons)
    left_out = sorted({*sum(MENDED.values(), ())} - {*checks})
    if left_out:
        return _open(f"That cannot be told without these checks, which the audit left out: {', '.join(left_out)}.")
    doubtful = {each.id for each in findings if each.state != PRESENT or (each.unless and _is_lowered(each))}
    open_checks = sorted(doubtful & {*sum(MENDED.values(), ())})
    if open_checks:
        return _open(f"That cannot be told without what these checks ask for: {', '.join(open_checks)}.")
    try:
        return Need("", {}, _healthy(node))
    except Unobserved as lack:
        return _open(f"That cannot be told: {lack.what} The output of this would tell: {lack.ask}.")


def _open(reason: str) -> Need:
    return Need("", {}, (reason,), is_open=True)


def _is_lowered(finding: Finding) -> bool:
    """Return whether a finding is a note of a check of errors or risks: it may be meant."""
    return finding.severity == NOTE and any(each.id == finding.id and each.severity != NOTE for each in catalogue.CHECKS)


def _healthy(node: Node) -> tuple[str, ...]:
    """Return why a node without findings needs no profile."""
    enis = node.enis
    if enis is None:
        return ("The node's pods share no interfaces by policy routing, and no check found what a profile mends.",)
    marks = f" {enis.marks[0].owner} marks the connections itself ({enis.marks[0].text})." if enis.marks else ""
    return (f"Requests to pods behind {', '.join(enis.secondary)} and their replies pass.{marks}",)


def _of_probe(node: Node) -> dict[str, t.Any] | None:
    return {"interface": node.probed_links()[0]}


def _of_enis(node: Node) -> dict[str, t.Any] | None:
    enis = node.enis
    if enis is None:
        return None
    common = {"layout": enis.layout, "primary_interface": enis.primary, "pod_interfaces": enis.pod_interfaces}
    return {**common, "enis": enis.enis, "priorities": enis.priorities} if enis.priorities else {**common, "enis": enis.enis}


def _of_migration(node: Node) -> dict[str, t.Any] | None:
    return {} if cni.CILIUM_PLUGIN in node.plugins() else None


def _of_uplinks(node: Node) -> dict[str, t.Any] | None:
    """Return no variables, as the profile reads the uplinks from the node; None where programs of Cilium decide, or a cloud."""
    return None if node.enis or node.has_cilium() else {}


_VARIABLES: dict[str, t.Callable[[Node], dict[str, t.Any] | None]] = {
    "aks_dual_stack": _of_probe,
    "eni_policy_routing": _of_enis,
    "cilium_migration": _of_migration,
    "symmetric_routing": _of_uplinks,
}
