# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at a node by all checks, tries in a twin what they suspect, and sends the packet of a finding again."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from .._core import fields, playbook_task
from .._core.errors import Failure, Invalid
from .._platform import process
from .._routing.route import Route
from .._routing.rule import Rule
from .._snapshot import open_facts
from .._snapshot.entries import kernels_rules
from .._snapshot.open_facts import OpenFact
from .._snapshot.snapshot import Origin
from .._snapshot.values import Entry, Snapshot, entries
from .._trace import changes_backend, entrance, trace_backend
from .._trace.answer import FORWARDED, LOST, UNKNOWN, Answer, Attempt, Way
from .._trace.culprit import NO_HAIRPIN, ChainRule, Link, Object, Setting, VirtualServer
from .._trace.packet import OUTSIDE, from_options
from .._twin import assumptions, full_table, snapshot_form, substitutions, worlds
from .._twin.work_backend import Work
from . import catalogue, clients, need, path_checks, service, sweep_backend
from .context import Context
from .finding import Check
from .node import ASK, FAMILIES, Node, likely, without_facts
from .suspicion import (
    CANNOT_TELL,
    COUNTER,
    NOTE,
    PASSED_UNLESS,
    PRESENT,
    SEVERITIES,
    TWIN,
    Finding,
    Miss,
    Remedy,
    Suspicion,
    Trial,
    Unobserved,
    together,
)
from .sweep_backend import ARRIVES, IS_LOST, IS_OPEN, Fate, Sent

MOST_WORK = 20_000  # units of work_backend, after which no trial begins
# Subsets without which a twin would say of a packet what may be false of the node.
NEEDED = ("links", "neighbors", "rules", "routes", "settings", "nftables", "iptables", "ipsets", "ebtables", "bpf", "ipvs")
# An audit is about the node, whatever the pods have that is not read, and however fast packets may leave. What a cloud may drop
# is lost for it.
ASSUMED: dict[str, t.Any] = dict.fromkeys(
    (substitutions.POD, substitutions.POD_RULES, substitutions.QUEUE, substitutions.SOURCE_CHECK), worlds.SHOWN
)
# By kinds of facts, the subsets that are empty if no output shows them and there is nothing more.
SHOWN_BY = {
    **{open_facts.NFT: "nftables", open_facts.TABLE: "iptables", open_facts.IPVS: "ipvs", open_facts.NEIGHBORS: "neighbors"},
    **{open_facts.RULES: "rules", open_facts.ROUTES: "routes"},
}
FEWEST = 3  # packets for which a twin of all is worth its while
MOST_NOTES = 4  # whose remedies are tried for one lost path
MOST_ASKS = 3  # commands, of which each path may need its own
STOPPING = (ChainRule, Link, Route, Rule, Setting, VirtualServer)  # what stops packets by being there
MOST_LOSSES = 12  # objects that stop packets, of which an audit says more than that they do


# How a front end makes one check alone.
OF_MODULE, OF_COMMAND = "datapath_audit with checks: [{}]", "kubenode-datapath audit --check {}"


class Audit(t.NamedTuple):
    """snapshot: of the node. context: as the option of the module. does_prove: whether to try suspicions in a twin.

    is_own: whether the snapshot is of the node on which this runs. wants_remedies: whether to look for those that no check has.
    assume: as the option of the modules. guesses: open facts that have their likely value. tell: takes what the
    audit does next. again: of its front end, how it makes one check.
    """

    snapshot: Entry
    checks: t.Sequence[Check]
    context: t.Mapping[str, t.Any] = {}
    does_prove: bool = True
    is_own: bool = False
    wants_remedies: bool = True
    assume: t.Mapping[str, t.Any] = {}
    guesses: t.Sequence[OpenFact] = ()
    tell: t.Callable[[str], None] = lambda _step: None
    again: str = OF_MODULE

    @property
    def node(self) -> Node:
        return Node(self.snapshot, Context.from_options(self.context), self.guesses)

    def in_part(self, changes: t.Sequence[changes_backend.Change] = ()) -> Audit:
        """Return the audit without routes that no check needs and no packet meets. Raises Invalid for the snapshot's form."""
        part = trace_backend.about(self.snapshot, changes, self.context, clients.FAR)
        snapshot_form.check(part)
        return self._replace(snapshot=part)

    def guessing(self) -> Audit:
        """Return the audit of the likely world."""
        guesses = likely(self.snapshot)
        return self._replace(snapshot=without_facts(self.snapshot, guesses), guesses=guesses)

    def assuming(self) -> Audit:
        """Return the audit of the snapshot with what is assumed, and with what a trace has to assume besides. Raises Invalid."""
        if not self.assume:
            return self
        settings, facts = worlds.divided(self.assume)
        snapshot = assumptions.with_settings(Snapshot.of(self.snapshot), settings)
        outside = (assumptions.Ends(address, "", address) for address in OUTSIDE.values())
        opened = {name: fact for ends in outside for name, fact in worlds.open_for(snapshot, ends).items()}
        # No packet is meant whose destination a fact may be about: what is shown is all for each of them.
        whole = [name for name, value in facts.items() if name in opened and value.lower() == worlds.SHOWN]
        in_world, _open = worlds.applied(snapshot, opened, {name: facts[name] for name in facts if name not in whole})
        changed = in_world.world()
        none = {"rules": [rule for family in FAMILIES for rule in kernels_rules(family)]}
        for subset in (SHOWN_BY.get(name.partition(":")[0]) for name in whole):
            changed.update({subset: changed.get(subset) or none.get(subset, [])} if subset else {})
        if "open" in changed:
            changed["open"] = [entry for entry in entries(changed, "open") if entry.get("fact") not in facts]
        of_trace = {name: value for name, value in facts.items() if name.partition(":")[0] in substitutions.NAMED}
        return self._replace(snapshot=changed, assume=of_trace)


def result(audit: Audit, run: process.Runner) -> dict[str, t.Any]:
    """Return the result of the module. Raises DatapathError."""
    assumed = [f"{fact}={value}" for fact, value in audit.assume.items()]
    audit = audit.in_part().assuming()
    every = findings(audit, run)
    with_findings = {finding.id for finding in every}
    guessed = [finding for finding in every if finding.state == PASSED_UNLESS]
    return {
        "findings": [finding.plain() for finding in sorted(every, key=_rank) if finding not in guessed],
        "passed": [check.id for check in audit.checks if check.id not in with_findings],
        "passed_unless": [{"id": each.id, "unless": [*each.unless], "ask": each.ask} for each in guessed],
        "profile": need.of(audit.node, every, [check.id for check in audit.checks]).plain(),
        "assumed": assumed,
        "node": Origin.of(audit.snapshot)._asdict(),
    }


def findings(audit: Audit, run: process.Runner) -> list[Finding]:
    """Return what the checks find, in their order. A check that cannot tell concludes from the likely world, if there is one, and
    says what it guesses. Raises DatapathError.
    """
    certain, guessing = _of_world(audit, run), audit.guessing()
    unclear = {finding.id for finding in certain if finding.state == CANNOT_TELL}
    if not (guessing.guesses and unclear):
        return certain
    guessed = [finding for finding in _of_world(guessing, run) if finding.id in unclear]  # by all checks, of which some explain
    sure = [finding for finding in certain if finding.state != CANNOT_TELL]
    places = {(finding.id, finding.subject) for finding in sure}
    passing = [check for check in audit.checks if check.id in unclear - {finding.id for finding in (*guessed, *sure)}]
    facts = dict.fromkeys(entry.fact for entry in guessing.guesses)
    sentences = tuple(dict.fromkeys(fact.what for fact in facts))
    ask = "; ".join(dict.fromkeys(command for fact in facts for command in fact.ask.split("; ")))
    return [
        *sure,
        *(_unless(each, sentences, ask) for each in guessed if (each.id, each.subject) not in places),
        *(_passing(check, sentences, ask) for check in passing),
    ]


def _unless(finding: Finding, guesses: tuple[str, ...], ask: str) -> Finding:
    """Return a finding of the likely world, with what would make it a false one. guesses: sentences. ask: what would tell."""
    if finding.state == CANNOT_TELL:
        return finding
    return finding._replace(unless=(*finding.unless, *guesses), ask=finding.ask or ask)


def _passing(check: Check, guesses: tuple[str, ...], ask: str) -> Finding:
    return check.finding(PASSED_UNLESS, "", "", unless=guesses, ask=ask)


def _of_world(audit: Audit, run: process.Runner) -> list[Finding]:
    """Return what the checks find if nothing is guessed besides what the audit guesses. Raises DatapathError."""
    node = audit.node
    looks = [_Look.at(check, node) for check in audit.checks]
    audit.tell("sending all packets through a copy of the node")
    prover = _Prover(audit, node, run, looks) if audit.does_prove else None
    alone = [look for look in looks if look.check is not path_checks.paths]
    every = [finding for look in _told(audit, alone) for finding in _findings(look, prover)]
    paths = [look for look in looks if look.check is path_checks.paths]
    of_paths = [each for look in _told(audit, paths) for each in _of_paths(look, prover, every)]
    shown = {(finding.id, finding.subject) for finding in of_paths}  # notes among them, of which a path shows what they lose
    whole = [finding for finding in every if (finding.id, finding.subject) not in shown] + of_paths
    return prover.agreed(whole) if prover else whole


def _told(audit: Audit, looks: t.Sequence[_Look]) -> t.Iterator[_Look]:
    for number, look in enumerate(looks, 1):
        audit.tell(f"check {number} of {len(looks)}: {look.check.id}")
        yield look


def question(audit: Audit, trial: Trial, changes: t.Sequence[changes_backend.Change]) -> trace_backend.Question:
    """Return what a trial asks of a twin, which gets a Service if the trial needs one."""
    snapshot = full_table.with_addresses(audit.snapshot, (trial.client, trial.server))
    snapshot = service.added(snapshot, trial.packet["interface"], trial.pod) if trial.pod else snapshot
    packet = entrance.packet({**trial.packet}, snapshot)
    assume = {**ASSUMED, **audit.assume, **trial.settings}
    return trace_backend.Question(snapshot, packet, assume, (*changes,), is_own=audit.is_own, is_compared=False)


def refuse_both(packet: object, finding: object) -> None:
    """Raise Invalid unless a packet or a finding is given, and not both."""
    if not packet and not finding:
        raise Invalid("packet", packet, "given, unless a finding is")
    if packet and finding:
        raise Invalid("finding", finding, "left out if a packet is given")


def repeated(
    audit: Audit,
    finding: str,
    changes: t.Sequence[changes_backend.Change],
    wants_reply: bool,
    run: process.Runner,
) -> Answer:
    """Return the answer for the packet of a finding. audit: with any checks. finding: ID or ID:SUBJECT. Raises DatapathError."""
    audit = audit.in_part(changes).assuming()
    trial = _trial(audit, finding, run)
    first = changes_backend.read(trial.first)
    asked = question(audit, trial, (*first, *changes))
    doubts = {fact: value for fact, value in asked.assume.items() if fact != substitutions.SOURCE_CHECK}
    asked = asked._replace(assume=doubts, wants_reply=wants_reply, is_compared=True)
    added = [substitutions.replaced(substitutions.STATED, sentence) for sentence in _added(trial)]
    traced = trace_backend.answer(asked, run)
    traced = traced._replace(assumed=(*added, *traced.assumed))
    miss = _missed(trial, traced.way) if traced.way.is_well() else None
    if miss is None:
        return traced
    return traced._replace(certain=False, unknown=(*traced.unknown, f"Whether it is lost beyond the node. {miss.what}"))


def _added(trial: Trial) -> t.Iterator[str]:
    """Yield what the twin has besides the node, as sentences."""
    if trial.pod:
        yield service.sentence(trial.pod)
    for key, value in trial.settings.items():
        yield f"{key} is {value}, as the next boot sets it."
    for change in trial.first:
        yield f"Another finding is mended first, so that it does not hide this one: {playbook_task.flow(change)}."


def _trial(audit: Audit, name: str, run: process.Runner) -> Trial:
    """Return what showed a finding. Raises Invalid for a name of none, or of several."""
    check_id, _colon, subject = name.strip().partition(":")
    check = catalogue.of_id("finding", check_id, "ID or ID:SUBJECT of a finding, whose ID is ")
    audit = audit._replace(checks=[check], does_prove=True, wants_remedies=False)
    trials = {each.subject: each.trial for each in findings(audit, run) if each.trial}
    named = [trial for each, trial in trials.items() if subject in ("", each)]
    if len(named) != 1:
        listed = ", ".join(f"{check_id}:{each}" for each in trials) or "none"
        raise Invalid("finding", name, f"one finding that the audit has shown by a packet; of {check_id} these are: {listed}")
    return named[0]


def _rank(finding: Finding) -> tuple[bool, int]:
    return finding.state != PRESENT, SEVERITIES.index(finding.severity)


class _Look(t.NamedTuple):
    """What a check concludes from the snapshot. lack: what it cannot tell; None if it can."""

    check: Check
    suspicions: t.Sequence[Suspicion]
    lack: Finding | None

    @classmethod
    def at(cls, check: Check, node: Node) -> _Look:
        suspicions: list[Suspicion] = []
        try:
            suspicions.extend(check.look(node))
        except (Unobserved, Invalid) as error:
            return cls(check, suspicions, _lack(check, error))
        return cls(check, suspicions, None)


def _findings(look: _Look, prover: _Prover | None) -> t.Iterator[Finding]:
    """Yield the findings of a check, one for each subject, and one about what it lacks."""
    of_subject: dict[str, list[Suspicion]] = {}
    for suspicion in look.suspicions:
        of_subject.setdefault(suspicion.subject, []).append(suspicion)
    lack, is_passing = look.lack, True
    try:
        for suspicions in of_subject.values():
            finding = _of_subject(look.check, suspicions, prover)
            if finding:
                is_passing = False
                yield finding
    except (Unobserved, Invalid) as error:
        lack = lack or _lack(look.check, error)
    if lack and (is_passing or lack.state != PASSED_UNLESS):
        yield lack


def _of_paths(look: _Look, prover: _Prover | None, others: t.Sequence[Finding]) -> t.Iterator[Finding]:
    """Yield the paths that are lost and that no other finding explains, one for each object that stops them, and one for those
    that are open.
    """
    if prover is None:
        yield from (_untried(look.check, suspicion) for suspicion in look.suspicions[:1])
    lack, lost = look.lack, list[Finding]()
    try:
        lost.extend(prover.lost_paths(look.check, look.suspicions, others) if prover else ())
    except (Unobserved, Invalid) as error:
        lack = lack or _lack(look.check, error)
    yield from lost
    if lack and not (lost and lack.state == PASSED_UNLESS):
        yield lack


def _of_subject(check: Check, suspicions: t.Sequence[Suspicion], prover: _Prover | None) -> Finding | None:
    """Return the finding of the first suspicion that holds; otherwise the first that cannot tell, or None."""
    without = [suspicion for suspicion in suspicions if suspicion.trial is None]
    open_finding = None
    for suspicion in (*(each for each in suspicions if each.trial), *([together(without)] if without else [])):
        finding = prover.tried(check, suspicion) if prover else _untried(check, suspicion)
        if finding and finding.state == PRESENT and suspicion.ask:  # it rests on a guess
            finding = finding._replace(state=CANNOT_TELL, proof="", remedy=None, ask=suspicion.ask)
        if finding and finding.state == PRESENT:
            return finding
        open_finding = open_finding or finding
    return open_finding


def _lack(check: Check, error: Unobserved | Invalid) -> Finding:
    """Return the finding about what a check lacks. Raises the error if it is not about the snapshot."""
    if isinstance(error, Unobserved) and error.is_unlikely:
        return _passing(check, (error.what,), error.ask)
    if isinstance(error, Unobserved):
        return check.finding(CANNOT_TELL, "", error.what, ask=error.ask, evidence=error.evidence)
    return _unknown(check, error)


def _unknown(check: Check, error: Invalid) -> Finding:
    """Return the finding for a node with what this version does not know, such as a policy rule with the action nop.

    Raises the error if it is not about an entry of the snapshot.
    """
    place, _dot, entry = error.option.partition(".")
    subset = entry.partition(".")[0].partition("[")[0]
    if place != "snapshot" or subset not in ASK:
        raise error
    return check.finding(CANNOT_TELL, "", f"The node has what the check does not know: {error}.", ask=ASK[subset])


def _by_configuration(check: Check, suspicion: Suspicion) -> Finding:
    subject, what, evidence, remedy, trial, severity, proof, _ask, (doubt, ask) = suspicion
    if not trial and proof != COUNTER:  # what no packet shows is no error
        severity = NOTE
    finding = check.finding(PRESENT, subject, what, severity=severity, evidence=evidence, proof=proof, remedy=remedy)
    return finding._replace(unless=(doubt,), ask=ask) if doubt else finding


def _untried(check: Check, suspicion: Suspicion) -> Finding:
    """Return the finding of an audit without twins, which cannot tell what a packet decides."""
    finding = _by_configuration(check, suspicion)
    return _not_tried(finding, "as prove is false", "an audit that tries packets") if suspicion.trial else finding


def _not_tried(finding: Finding, reason: str, ask: str) -> Finding:
    what = f"{finding.what} That was not tried, {reason}."
    return finding._replace(state=CANNOT_TELL, what=what, proof="", remedy=None, ask=ask)


class _Prover:
    """Sends the packets of suspicions through twins of the node: all of them through one, and what is lost there through others
    that show why.
    """

    def __init__(self, audit: Audit, node: Node, run: process.Runner, looks: t.Sequence[_Look]) -> None:
        self._audit, self._node, self._run = audit, node, run
        self._work = Work()
        self._judgements: dict[str, trace_backend.Judgement] = {}  # several checks send the same packet
        self._fates: dict[str, Fate] = {}
        self._harms: dict[str, str] = {}  # by changes
        self._cured: set[str] = set()  # changes
        self._unswept: Finding | None = None
        try:
            trials = [each.trial for look in looks for each in look.suspicions if each.trial]
            has_paths = any(look.check is path_checks.paths for look in looks)
            self._fates = self._swept(trials if has_paths or len(trials) >= FEWEST else [])
        except Unobserved as lack:
            self._unswept = path_checks.paths.finding(CANNOT_TELL, "", lack.what, ask=lack.ask)
        except (Failure, Invalid) as error:  # of this twin; those of single packets need not meet what it met
            what = f"No twin has all packets: {error}."
            self._unswept = path_checks.paths.finding(CANNOT_TELL, "", what, ask=self._again(path_checks.paths))

    def _swept(self, trials: t.Sequence[Trial], changes: t.Sequence[changes_backend.Change] = ()) -> dict[str, Fate]:
        """Return what becomes of the packets that are alone in their trials. Raises Failure, Invalid, Unobserved."""
        self._demand()
        sent: dict[str, Sent] = {}
        ends = (end for trial in trials for end in (trial.client, trial.server))
        snapshot = full_table.with_addresses(self._audit.snapshot, ends)
        snapshot_form.check(snapshot)
        for trial in filter(_is_alone, trials):
            with contextlib.suppress(Invalid):  # which the trial says, too
                packet = entrance.placed(from_options(trial.packet), snapshot)
                sent[repr(trial.packet)] = packet, trial.missed or sent.get(repr(trial.packet), (packet, None))[1]
        audit = self._audit
        assume = {**ASSUMED, **audit.assume}
        fates = sweep_backend.fates(snapshot, [*sent.values()], assume, self._run, audit.is_own, self._work, changes)
        return dict(zip(sent, fates))

    def _again(self, check: Check) -> str:
        """Return what asks for a check alone, to which all twins are left."""
        return self._audit.again.format(check.id)

    @property
    def _is_over(self) -> bool:
        return self._work.done > MOST_WORK

    @functools.cached_property
    def _sample(self) -> list[Trial]:
        """Return paths of the node that packets pass, or may pass: its operators' ones, and one between any two shapes of ends.

        What is lost stands for itself, so that all paths of its ends are tried. Raises Failure, Invalid, Unobserved.
        """
        trials = [path.trial for path in _Look.at(path_checks.paths, self._node).suspicions if path.trial]
        fates = ((trial, self._fates.get(repr(trial.packet))) for trial in trials)
        apart: dict[str, Trial] = {}
        passing = list[Trial]()
        for trial, fate in fates:
            if fate is None or fate.outcome == ARRIVES:
                passing.append(trial)
            elif fate.outcome == IS_LOST:
                apart.setdefault(fate.decider, trial)
        shapes: dict[str, t.Any] = {}
        for family in FAMILIES:
            shapes.update(path_checks.shapes(self._node, family, self._node.pods_of(family)))
        for trial in apart.values():
            for end in ("source", "destination"):
                shapes.pop(str(trial.packet.get(end)), None)
        of_shapes: dict[str, Trial] = {}
        for trial in passing:
            packet = {**trial.packet, "interface": bool(trial.packet.get("interface"))}
            packet.update({end: shapes.get(str(packet.get(end)), packet.get(end)) for end in ("source", "destination")})
            of_shapes.setdefault(repr(packet), trial)
        return [*path_checks.of_operators(self._node), *of_shapes.values()]

    def _harm(self, changes: t.Sequence[changes_backend.Change]) -> str:
        """Return which path that packets pass now changes end, or why this was not tried; empty if they end none, or if no twin
        can have all packets.
        """
        key = repr((*changes,))
        if key not in self._harms:
            self._harms[key] = ""
            try:
                self._harms[key] = self._ended(changes)
            except Failure as failure:
                self._harms[key] = f"Whether it ends other paths was not tried, because the twin of these failed: {failure}."
            except (Invalid, Unobserved):  # that one packet has a twin does not mean that all have
                pass
        return self._harms[key]

    def _ended(self, changes: t.Sequence[changes_backend.Change]) -> str:
        """Raises Failure, Invalid, Unobserved."""
        after = self._swept(self._sample, changes)
        # By which interface a cloud sends packets to a pod, a remedy may have to tell.
        ended = {packet for packet, fate in after.items() if fate.outcome == IS_LOST and not fate.is_beyond}
        lost = [trial for trial in self._sample if repr(trial.packet) in ended]
        self._fates.update(self._swept([trial for trial in lost if repr(trial.packet) not in self._fates]))
        for trial in lost:
            if self._fates[repr(trial.packet)].outcome == ARRIVES:
                way = self._judgement(trial, (*changes,)).answer.way  # a twin of many packets does not wait for each
                if any(each.verdict in LOST for each in way.both):
                    sent = entrance.packet({**trial.packet}, self._audit.snapshot)
                    return f"It ends the path of {sent.line}: {way.reason}"
        return ""

    def _demand(self) -> None:
        """Raise Unobserved without what a twin needs."""
        if "open" not in self._audit.snapshot:  # which says of each missing part of pasted outputs what it may be
            for subset in NEEDED:
                self._node.demand(subset)

    def tried(self, check: Check, suspicion: Suspicion) -> Finding | None:
        """Return the finding, with the packet that is lost and a remedy with which it arrives; None if nothing is lost."""
        finding, trial = _by_configuration(check, suspicion), suspicion.trial
        if trial is None:
            return self._harmless(finding)
        fate = self._fates.get(repr(trial.packet))
        if fate and fate.outcome == ARRIVES and _is_alone(trial):
            return None
        if self._is_over:
            reason = "as another twin hung" if self._work.has_hung else f"as the twins of an audit do {MOST_WORK} units of work"
            return _not_tried(finding, reason, self._again(check))
        try:
            return self._proved(finding, trial, suspicion.remedy)
        except Failure as failure:  # of this twin; those of other checks need not meet what it met
            return _not_tried(finding, f"because its twin failed: {failure}", self._again(check))

    def _harmless(self, finding: Finding) -> Finding:
        """Return a finding that no packet shows, without its remedy if that ends the path of one."""
        remedy = finding.remedy if self._audit.wants_remedies and not self._is_over else None
        harm = ""
        with contextlib.suppress(Invalid):  # of a remedy that is no change of a twin
            harm = self._harm(_changes(remedy)) if remedy else ""
        what = f"{finding.what} {_named(remedy)} is not offered: {harm}" if remedy and harm else finding.what
        return finding._replace(remedy=None if harm else finding.remedy, what=what)

    def lost_paths(self, check: Check, paths: t.Sequence[Suspicion], others: t.Sequence[Finding]) -> t.Iterator[Finding]:
        """Yield a finding for each object that stops packets and that no other finding names, and one for what is open."""
        if self._unswept:
            yield self._unswept
            return
        of_decider: dict[str, list[Suspicion]] = {}
        direct = set[str]()  # what stops not only answers
        is_open = list[Fate]()
        for path in paths:
            fate = self._fates.get(repr(path.trial.packet), Fate(IS_OPEN)) if path.trial else Fate(ARRIVES)
            if fate.outcome == IS_LOST:
                of_decider.setdefault(fate.decider, []).append(path)
                direct.update([] if fate.is_reply else [fate.decider])
            elif fate.outcome == IS_OPEN:
                is_open.append(fate)
        others = [other for other in others if other.state == PRESENT]
        named = {cause for other in others if other.severity != NOTE and other.way for cause in _causes(other.way)}
        unnamed = [decider for decider in of_decider if decider not in named][:MOST_LOSSES]
        lost = (self._lost_path(check, of_decider[decider], others, decider in direct) for decider in unnamed)
        findings = sorted(filter(None, lost), key=lambda finding: -SEVERITIES.index(finding.severity))
        yield from {finding.subject: finding for finding in findings}.values()  # of one object, the worst is the last
        if is_open:
            asks = "; ".join([*dict.fromkeys(fate.ask for fate in is_open if fate.ask)][:MOST_ASKS]) or self._again(check)
            first = next((fate.what for fate in is_open if fate.what), "They were not tried.")
            yield check.finding(
                CANNOT_TELL, "", f"{len(is_open)} of {len(paths)} paths depend on what is open. {first}", ask=asks
            )

    def _lost_path(
        self, check: Check, paths: t.Sequence[Suspicion], others: t.Sequence[Finding], is_direct: bool
    ) -> Finding | None:
        """Return the finding about the paths that one object stops. is_direct: whether it stops more than answers."""
        first = max(paths, key=lambda path: (_is_open_to_all(path.trial), -SEVERITIES.index(path.severity or check.severity)))
        finding = self.tried(check, first)
        if finding is None or finding.way is None or self._is_explained(finding.way, first, others):
            return finding if finding and finding.way is None else None
        lost = next((way for way in finding.way.both if way.verdict in LOST), finding.way)
        decider = lost.culprit.object if lost.culprit else None
        miss = _missed(first.trial, finding.way) if first.trial else None
        # No policy lets a packet pass and stops the answer to it.
        if lost is finding.way and not miss and path_checks.is_meant(self._node, decider, lost.met):
            return None
        more = [f"{len(paths) - 1} further paths are lost by the same."] if len(paths) > 1 else []
        text = miss.subject if miss else path_checks.of_all_links(self._node, decider) or (lost.culprit and lost.culprit.text)
        evidence = (text,) if text else ()
        what = " ".join([finding.what, finding.way.reason, *([miss.what] if miss else []), *more])
        # A pod that is the endpoint of its Service may be meant not to reach itself.
        is_to_itself = (isinstance(decider, Link) and decider.trouble == NO_HAIRPIN) or _is_to_itself(finding.way)
        # Without a cloud's interfaces, a router may let answers from another interface's address pass.
        is_guess = lost is finding.way and lost.verdict not in LOST and not miss and not self._node.pods_of_enis()
        is_restriction = is_direct and not lost.met.is_unresolved and path_checks.restricts(decider, paths)
        severity = NOTE if is_to_itself or is_guess or is_restriction else (miss and miss.severity) or finding.severity
        notes = [other for other in others if other.severity == NOTE and not other.packet and other.remedy]
        noted = next((other for other in notes[:MOST_NOTES] if severity != NOTE and self._is_mended(first, other)), None)
        if noted:  # the check's name and remedy are better than those of the path
            shown = finding._replace(id=noted.id, source=noted.source, evidence=noted.evidence, remedy=noted.remedy)
            return shown._replace(subject=noted.subject, what=f"{noted.what} {what}", severity=severity)
        return finding._replace(subject=(*evidence, finding.packet)[0], evidence=evidence, what=what, severity=severity)

    def _is_explained(self, way: Way, path: Suspicion, others: t.Sequence[Finding]) -> bool:
        """Return whether another finding names what stops a packet, or has a remedy with which it arrives.

        A note explains no error.
        """
        for other in (other for other in others if other.severity != NOTE or path.severity == NOTE):
            if other.way and other.way.decider and other.way.decider == way.decider:
                return True
            if self._is_mended(path, other):
                return True
        return False

    def _is_mended(self, path: Suspicion, other: Finding) -> bool:
        """Return whether a packet arrives with the remedy of another finding."""
        mended = None
        with contextlib.suppress(Failure, Invalid):  # a remedy for another trouble need not be possible beside this one
            mended = self._mended(path.trial, other.remedy) if path.trial else None
        is_well = mended and mended.certain and not _failing(mended, Trial({}, missed=path.trial and path.trial.missed))
        return bool(is_well)

    def _proved(self, finding: Finding, trial: Trial, remedy: Remedy | None) -> Finding | None:
        """Raises Failure, Invalid, Unobserved."""
        self._demand()
        answer = self._judgement(trial, changes_backend.read(trial.first)).answer
        way = _failing(answer, trial)
        is_certain = answer.certain or bool(answer.branches)
        if answer.way.verdict == UNKNOWN or not (is_certain or (way and self._is_likely(trial, way, answer))):
            return _uncertain(finding, trial, answer)
        if way is None:
            return None
        mended = self._mended(trial, remedy)
        if trial.is_shown_by_remedy and not (mended and mended.certain):
            return _uncertain(finding, trial, mended or answer)
        is_mended = mended and (mended.certain or not is_certain) and not _failing(mended, trial._replace(culprit=None))
        # The node as it is now is that without the line of the next boot, and the packet arrives there.
        is_cured = bool(trial.settings) or bool(is_mended)
        if trial.is_shown_by_remedy and not is_cured:
            return None
        harm = self._harm(_changes(remedy)) if is_cured and remedy and self._audit.wants_remedies else ""
        cure, tried = (remedy, ()) if is_cured and not harm else (None, ()) if _missed(trial, way) else self._offered(trial)
        tried = (*([Attempt(_named(remedy), harm)] if harm and remedy else ()), *tried)
        ask = remedy.ask if remedy and not cure else ""
        added = (service.sentence(trial.pod),) if trial.pod else ()
        what = " ".join([finding.what, *(f"{each.change} is not offered: {each.reason}" for each in tried if not cure)])
        packet = entrance.packet({**trial.packet}, self._audit.snapshot)
        finding = finding._replace(what=what, proof=TWIN, packet=packet.line, way=way, remedy=cure, ask=ask, trial=trial)
        finding = finding._replace(added=added)
        return finding if is_certain else finding._replace(unless=_open_facts(answer), ask=ask or _asks(answer))

    def _is_likely(self, trial: Trial, way: Way, answer: Answer) -> bool:
        """Return whether an object stops a packet whatever the missing outputs show, or keeps it from where it must get whatever
        a twin replaces.
        """
        opened = {str(entry.get("fact")) for entry in entries(self._audit.snapshot, "open")}
        facts = [entry.fact for entry in answer.depends_on]
        return (_is_stopped(way) and opened.issuperset(facts)) or (_missed(trial, way) is not None and opened.isdisjoint(facts))

    def _mended(self, trial: Trial, remedy: Remedy | None) -> Answer | None:
        """Return the answer for the packet after the remedy of the check; None if no twin can apply it."""
        changes = _changes(remedy) if remedy else ()
        return self._judgement(trial, changes).answer if changes else None

    def _offered(self, trial: Trial) -> tuple[Remedy | None, t.Sequence[Attempt]]:
        """Return the first remedy of a trace that ends no other path, and those that do not work.

        What cured another packet is tried first.
        """
        if self._is_over or not self._audit.wants_remedies:
            return None, ()
        answer = self._judgement(trial).with_cures(
            self._cured, lambda cure: self._harm(cure.changes) or self._rest(trial, cure.changes)
        )
        offered = next(iter(answer.cures), None)
        if offered is None:
            return None, answer.tried
        self._cured.add(repr(offered.changes))
        of_role = Remedy(profile=offered.profile, options=offered.options, changes=offered.changes)
        return of_role._replace(operator=offered.change, task=offered.task), answer.tried

    def agreed(self, findings: t.Sequence[Finding]) -> list[Finding]:
        """Give the findings of a profile the variables of one of them with which the packets of all arrive, if there are such."""
        agreed = {id(finding): finding for finding in findings}
        for profile in need.MENDED:
            of_profile = [each for each in findings if each.trial and each.remedy and each.remedy.profile == profile]
            remedies = {repr(each.remedy.options): each.remedy for each in of_profile if each.remedy}
            trials = [each.trial for each in of_profile if each.trial]
            common = next((each for each in reversed([*remedies.values()]) if self._mends(each, trials)), None)
            agreed.update({id(each): each._replace(remedy=common) for each in of_profile if common and len(remedies) > 1})
        return [*agreed.values()]

    def _mends(self, remedy: Remedy, trials: t.Sequence[Trial]) -> bool:
        """Return whether the packets of all trials arrive with what a twin made of a remedy."""
        with contextlib.suppress(Failure, Invalid):
            return not any(_failing(self._judgement(trial, remedy.changes).answer, trial) for trial in trials)
        return False

    def _rest(self, trial: Trial, changes: t.Sequence[changes_backend.Change]) -> str:
        """Return what still keeps a packet from where it must get after changes, as a sentence; empty for nothing."""
        ways = self._judgement(trial, (*changes,)).answer.every_way if trial.missed else ()
        return next((miss.what for miss in (_missed(trial, way) for way in ways) if miss), "")

    def _judgement(self, trial: Trial, changes: tuple[changes_backend.Change, ...] = ()) -> trace_backend.Judgement:
        key = repr((trial._replace(culprit=None, is_shown_by_remedy=False, first=(), missed=None), changes))
        if key not in self._judgements:
            self._judgements[key] = trace_backend.judge(question(self._audit, trial, changes), self._run, self._work)
        return self._judgements[key]


def _changes(remedy: Remedy) -> tuple[changes_backend.Change, ...]:
    """Return what a twin can do of a remedy. Raises Invalid."""
    calls = [{remedy.module: {**remedy.options}}] if remedy.module in changes_backend.MODULES else []
    return changes_backend.read(calls, remedy.commands)


def _named(remedy: Remedy) -> str:
    return "; ".join(remedy.commands) or remedy.module


def _is_stopped(way: Way) -> bool:
    """Return whether an object that the node has stops a packet or its reply, and not the lack of one, which may be elsewhere."""
    return way.decider is not None and isinstance(way.decider.object, STOPPING)


def _open_facts(answer: Answer) -> tuple[str, ...]:
    return (*dict.fromkeys(entry.what for entry in answer.depends_on),)


def _asks(answer: Answer) -> str:
    return "; ".join(dict.fromkeys(entry.ask for entry in answer.depends_on if entry.ask))


def _uncertain(finding: Finding, trial: Trial, answer: Answer) -> Finding:
    what = f"{finding.what} That is not certain: {(*_open_facts(answer), answer.way.reason)[0]}"
    # Of a program on the path, which a twin lacks, only a real packet tells.
    ask = _asks(answer) or f"tcpdump -ni {trial.packet.get('interface') or 'any'}"
    return finding._replace(state=CANNOT_TELL, what=what, proof="", remedy=None, ask=ask)


def _failing(answer: Answer, trial: Trial) -> Way | None:
    """Return the way on which the packet of a trial is lost, or leaves the node from another address than it must."""
    if trial.source:
        return next((way for way in answer.every_way if _is_from_another(way, trial.source)), None)
    lost = (way for way in answer.every_way if _is_lost(way, trial.culprit) or _missed(trial, way))
    return next(lost, answer.way if answer.caveats and not trial.culprit else None)  # a cloud may drop it


def _is_open_to_all(trial: Trial | None) -> bool:
    """Return whether any object that stops a packet counts."""
    return trial is not None and trial.culprit is None


def _missed(trial: Trial, way: Way) -> Miss | None:
    return trial.missed(way) if trial.missed else None


def _is_from_another(way: Way, source: str) -> bool:
    return bool(way.verdict == FORWARDED and way.met.frame and fields.show(way.met.frame.packet.source) != source)


def _causes(way: Way) -> t.Iterator[str]:
    """Yield what a sweep calls that by which a packet or its reply is lost."""
    for lost in (each for each in way.both if each.verdict in LOST):
        yield from (sweep_backend.cause(lost, family) for family in FAMILIES)


def _is_to_itself(way: Way) -> bool:
    """Return whether a packet was translated to its own sender."""
    sent = way.met.query
    return sent is not None and sent.source == sent.destination


def _is_alone(trial: Trial) -> bool:
    """Return whether a trial is refuted if its packet and the reply arrive."""
    return trial == Trial(trial.packet, culprit=trial.culprit, missed=trial.missed)


def _is_lost(way: Way, is_culprit: t.Callable[[Object | None], bool] | None) -> bool:
    """Return whether a packet or its reply is lost. is_culprit: tells whether it is by the right object; None for any."""
    is_lost = any(each.verdict in LOST for each in way.both)
    return is_lost and (is_culprit is None or is_culprit(way.decider.object if way.decider else None))
