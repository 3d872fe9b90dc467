# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which rule drops every packet of a kind, as far as the rules alone tell. For packets that no twin can send."""

from __future__ import annotations

import typing as t

from .ruleset import DROP, GOTO, JUMP, REJECT, RETURN, VERDICTS, VMAP, Chain, Match, Rule, Statement, Table

# By field, whether the packet has a value; None if that is open. A field that is left out is open.
Packet = t.Mapping[str, t.Callable[[str], t.Optional[bool]]]
_CONDITIONS = ("limit", "quota", "ct count", "xt")  # statements that end a rule for some packets
_Outcome = t.Union[Rule, bool, None]  # the rule that drops; True if the packet may be accepted; None at the end of a chain


def dropping(table: Table, name: str, packet: Packet) -> Rule | None:
    """Return the rule of a base chain, or its policy as a rule, that drops the packet for certain; None if it may pass."""
    outcome, chain = _outcome(table, name, packet, frozenset()), table.chains[name]
    if outcome is None and chain.policy == DROP:
        return Rule(name, line=f"{name} policy drop")
    return outcome if isinstance(outcome, Rule) else None


def _outcome(table: Table, name: str, packet: Packet, entered: frozenset[str]) -> _Outcome:
    for rule in table.chains.get(name, Chain()).rules if name not in entered else ():
        applies, verdict = _applies(rule, packet), _verdict(rule, packet)
        if applies is False or verdict is None or verdict.kind == "continue":
            continue
        if verdict.kind in (DROP, REJECT):
            if applies:
                return rule
        elif verdict.kind in (JUMP, GOTO):
            outcome = _outcome(table, verdict.target, packet, entered | {name})
            if outcome is True or applies and (outcome or verdict.kind == GOTO):
                return outcome
        else:
            return None if applies and verdict.kind == RETURN else True
    return None


def _verdict(rule: Rule, packet: Packet) -> Statement | None:
    """Return the verdict of a rule; of a lookup in a map, that of the packet's element, or one that may accept."""
    lookup = next((each for each in rule.statements if each.kind == VMAP), None)
    if lookup is None:
        return rule.verdict
    has = packet.get(lookup.key)
    if not has or not lookup.elements:
        return Statement("queue")
    return next((each.statement for each in lookup.elements if has(each.key[0])), None)


def _applies(rule: Rule, packet: Packet) -> bool | None:
    """Return whether a rule's verdict is for the packet; None if that is open."""
    answers = {_holds(match, packet) for match in rule.matches}
    if False in answers:
        return False
    before = (each.kind for each in rule.statements if each.kind not in (*VERDICTS, VMAP))
    return None if None in answers or any(kind in _CONDITIONS for kind in before) else True


def _holds(match: Match, packet: Packet) -> bool | None:
    has = packet.get(match.field)
    answers = {None if value.startswith("@") else has(value) for value in match.values} if has else {None}
    if True in answers:
        return not match.is_negated
    return None if None in answers or not answers else match.is_negated
