# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a check concludes from a node's configuration, and how to try it."""

from __future__ import annotations

import typing as t

from .._core import playbook_task
from .._core.printable import in_one_line
from .._trace.answer import Way
from .._trace.culprit import Object

ERROR, RISK, NOTE = SEVERITIES = ("error", "risk", "note")
# PASSED_UNLESS: that something is wrong would need a value of an open fact that few nodes have.
PRESENT, CANNOT_TELL = STATES = "present", "cannot_tell"
PASSED_UNLESS = "passed_unless"
COLLECTION = "kubenode.datapath."  # before the names of its modules
TWIN, COUNTER, CONFIGURATION = "twin", "counter", "configuration"


class Unobserved(Exception):
    """What a check needs was not observed. what: a sentence. ask: the commands whose output would tell. is_unlikely: whether few
    nodes have something there that would change the conclusion. evidence: lines for which something is likely to be wrong.
    """

    def __init__(self, what: str, ask: str, is_unlikely: bool = False, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.what, self.ask, self.is_unlikely, self.evidence = what, ask, is_unlikely, evidence


class Remedy(t.NamedTuple):
    """A call of a module of this collection, or what an operator has to do, with the commands if there are any.

    task: to paste into a playbook; empty if there is none. ask: commands whose output shows what a remedy needs, if none cures.
    profile: whose role has the options, without their prefix. changes: that a twin made of it.
    """

    module: str = ""
    options: t.Mapping[str, t.Any] = {}
    operator: str = ""
    commands: tuple[str, ...] = ()
    task: str = ""
    ask: str = ""
    profile: str = ""
    changes: tuple[t.Any, ...] = ()

    @property
    def change(self) -> str:
        return f"{COLLECTION}{self.module}" if self.module else self.operator

    @property
    def lines(self) -> list[str]:
        """Return commands or a task."""
        return [*self.commands, *map(in_one_line, self.task.splitlines())]

    def plain(self) -> dict[str, t.Any]:
        if self.module:
            task = playbook_task.of_module(f"Mend it by {self.module}", self.module, self.options)
            return {"module": self.change, "options": dict(self.options), "task": task}
        return {"operator": self.operator, "commands": [*self.commands], "task": self.task, "profile": self.profile}


class Miss(t.NamedTuple):
    """An object that keeps a packet from where it must get, even if the packet is not lost. what: a sentence. severity: that of
    the path if it is empty.
    """

    subject: str
    what: str
    severity: str = ""


class Trial(t.NamedTuple):
    """A packet that is lost if the suspicion is right. packet: as the option of datapath_trace.

    pod: the address of a pod to which the twin's Service leads; empty if the packet is for none. culprit: tells whether an object
    is what must stop the packet; None for any. is_shown_by_remedy: whether the suspicion is right only if the remedy lets the
    packet arrive. source: the address from which the packet must leave the node: the suspicion is right if it leaves from another
    one, and not if it is lost. first: calls of modules before the packet is sent, so that another trouble does not hide this one.
    missed: tells what keeps a packet from where it must get, whatever stops it. settings: that the next boot sets, by their keys.
    """

    packet: t.Mapping[str, t.Any]
    pod: str = ""
    culprit: t.Callable[[Object | None], bool] | None = None
    is_shown_by_remedy: bool = False
    first: tuple[t.Mapping[str, t.Any], ...] = ()
    source: str = ""
    missed: t.Callable[[Way], Miss | None] | None = None
    settings: t.Mapping[str, int] = {}

    @property
    def client(self) -> str:
        """Return the address from which the packet comes; empty if the node chooses it."""
        return str(self.packet.get("source") or "")

    @property
    def server(self) -> str:
        """Return the address to which the packet is sent."""
        return str(self.packet["destination"])


class Suspicion(t.NamedTuple):
    """What a check concludes from a snapshot alone. Of several about one subject, one that holds is the finding.

    subject: a link, an address or a rule, the same after each boot. evidence: lines as their tools print them.
    severity: that of the check if it is empty. trial: None if no packet can show it. proof: without a trial, COUNTER if the
    kernel counted what is wrong. ask: commands whose output would tell, where the suspicion rests on a guess. doubt: a sentence
    about what is open and would make it a false one on few nodes, and the commands whose output would tell.
    """

    subject: str
    what: str
    evidence: tuple[str, ...]
    remedy: Remedy | None = None
    trial: Trial | None = None
    severity: str = ""
    proof: str = CONFIGURATION
    ask: str = ""
    doubt: tuple[str, str] = ("", "")


def together(suspicions: t.Sequence[Suspicion]) -> Suspicion:
    """Return what is concluded about one subject without a trial, as one suspicion."""
    first = suspicions[0]
    what = " ".join(dict.fromkeys(each.what for each in suspicions))
    evidence = tuple(dict.fromkeys(line for each in suspicions for line in each.evidence))
    commands = tuple(dict.fromkeys(command for each in suspicions if each.remedy for command in each.remedy.commands))
    remedy = first.remedy._replace(commands=commands) if first.remedy else None
    return first._replace(what=what, evidence=evidence, remedy=remedy)


class Finding(t.NamedTuple):
    """A suspicion that holds, or a check that cannot tell, or that passes unless an open fact has an unlikely value; both have
    ``ask`` and no evidence.

    id, source: of the check. packet: that is lost, as text. way: what became of it. trial: that showed it. unless: of one that
    holds, or of a check that passes, in the likely worlds: sentences about open facts whose values cannot all be tried. added:
    sentences about what the twin has besides the node.
    """

    id: str
    subject: str
    state: str
    severity: str
    what: str
    evidence: tuple[str, ...] = ()
    proof: str = ""
    packet: str = ""
    way: Way | None = None
    remedy: Remedy | None = None
    ask: str = ""
    source: str = ""
    trial: Trial | None = None
    unless: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What a finding of a node is told apart by."""
        return self.id, self.subject

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.id, self.subject)))

    def plain(self) -> dict[str, t.Any]:
        values = self._asdict()
        way, _trial = values.pop("way"), values.pop("trial")
        remedy = self.remedy.plain() if self.remedy else None
        values.update({name: [*values[name]] for name in ("evidence", "unless", "added")})
        return {**values, "trace": way.both_alone() if way else None, "remedy": remedy}
