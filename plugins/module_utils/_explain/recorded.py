# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes that the agent has recorded on a node: which program made them, and how the node was before them."""

from __future__ import annotations

import typing as t

from .._core import form
from .._core.errors import Invalid
from .._core.form import FIELDS, LINE, NUMBER, Form
from .._ruleset.ruleset import LEGACY
from .._snapshot import values
from .._snapshot.snapshot import NODE, Origin
from .._snapshot.values import Entry
from .._twin import snapshot_form
from . import node_objects
from .differences import Change
from .node_differences import Difference
from .node_objects import Kind

CHANGES = "changes"  # the key of a snapshot that kubenode-datapath has read by the agent's pod
UNKNOWN = "what was changed is not recorded"
SILENT = "Routes that the kernel removed when {} was {} are not recorded, because it does not tell."
_NUMBER = Form(NUMBER.read, 0)
_FORM = form.many(
    form.record({"time": _NUMBER, "kind": LINE, "verb": LINE, "text": LINE, "program": LINE, "before": FIELDS, "after": FIELDS})
)
OF_NFTABLES = ("nft", "iptables", "ebtables")  # kinds of changes of which the kernel tells the program alone
_OBJECTS = {"rules": node_objects.RULE, "routes": node_objects.ROUTE, "neighbors": node_objects.NEIGHBOR}


class Record(t.NamedTuple):
    """A change. before, after: the part of a snapshot that has the object, or a list without it; empty if that is not known."""

    time: float
    kind: str
    verb: str
    text: str
    program: str
    before: Entry
    after: Entry

    @property
    def texts(self) -> list[str]:
        """Return the texts that the change has between two snapshots."""
        return [change.text for change in Difference(self.before, self.after).changes]

    @property
    def is_known(self) -> bool:
        """Return whether it can be undone. A link that is gone is not made again: nothing says what was behind it."""
        before, after = ({str(link["name"]) for link in values.entries(side, "links")} for side in (self.before, self.after))
        return bool(self.before) and self.before.keys() == self.after.keys() and before <= after

    @property
    def may_hide_routes(self) -> bool:
        """Return whether an address is gone or a link is down: routes of IPv4 go with it without a message (fib_frontend.c)."""
        pairs = zip(values.entries(self.before, "links"), values.entries(self.after, "links"))
        return any(_has_less(old, new, key) for old, new in pairs for key in ("addresses", "flags"))


def _has_less(old: Entry, new: Entry, key: str) -> bool:
    return len(new.get(key) or ()) < len(old.get(key) or ())


def read(snapshot: Entry) -> list[Record]:
    """Return the changes in a snapshot, the newest last; none for one that the agent's pod did not read. Raises Invalid."""
    try:
        records = [Record(**entry) for entry in form.inside(CHANGES, _FORM, snapshot.get(CHANGES) or ())]
    except form.Refused as error:
        raise Invalid(f"snapshot.{CHANGES}", str(error), "changes as the agent records them") from None
    for record in records:
        for side in (record.before, record.after):
            snapshot_form.check(side)
    return records


class Programs(t.NamedTuple):
    """by_text: programs by the text of a change. of_rulesets: what alone has changed those of nftables; empty if unknown."""

    by_text: t.Mapping[str, str]
    of_rulesets: str = ""

    def of(self, change: Change) -> str:
        """Return the program that made a change; empty if it is not known."""
        return self.of_rulesets if change.kind in OF_NFTABLES else self.by_text.get(change.text, "")


def programs(snapshot: Entry, before: Origin) -> Programs:
    """Return the programs of what a snapshot has recorded since an earlier state. Raises Invalid."""
    records = read(snapshot)
    since = before.seconds
    by_text = {text: record.program for record in records if record.time >= since for text in record.texts}
    # The kernel does not say what of a ruleset was changed. A history that begins later may lack another program.
    is_whole = bool(since and records) and records[0].time <= since and not _has_legacy_tables(snapshot)
    changed = {record.program for record in records if record.time >= since and not (record.before or record.after)}
    return Programs(by_text, "".join(changed) if is_whole and len(changed) == 1 else "")


def _has_legacy_tables(snapshot: Entry) -> bool:
    """Return whether a change of iptables may be none of nftables."""
    return any(table.get("backend") == LEGACY for table in values.entries(snapshot, "iptables"))


def earlier(snapshot: Entry) -> tuple[Entry, list[str]]:
    """Return a snapshot without its recorded changes, and sentences about those that remain in it. Raises Invalid."""
    notes: dict[str, None] = {}
    for record in reversed(read(snapshot)):
        if record.may_hide_routes:
            notes[SILENT.format(record.text.rstrip(","), record.verb)] = None
        if record.is_known:
            snapshot = {**snapshot, **{subset: _undone(subset, snapshot, record) for subset in record.before}}
        else:
            program = f" by {record.program}" if record.program else ""
            notes[f"{record.text.rstrip(',')} was {record.verb}{program}, and {UNKNOWN}."] = None
    origin = Origin.of(snapshot)._replace(time="")  # before the first change, and not when the whole was read
    return {**snapshot, **({NODE: origin._asdict()} if NODE in snapshot else {})}, [*notes]


def _undone(subset: str, snapshot: Entry, record: Record) -> t.Any:
    if subset == "settings":
        return _with_values(snapshot.get(subset) or {}, record.before[subset])
    present, before, after = (values.entries(each, subset) for each in (snapshot, record.before, record.after))
    if subset == "links":
        return _links(present, before, after)
    links = {str(link["name"]) for link in values.entries(snapshot, "links")}
    returned = [entry for entry in before if not entry.get("dev") or str(entry["dev"]) in links]
    entries = _replaced(_OBJECTS[subset], present, after, returned)
    return sorted(entries, key=_place_of_rule) if subset == "rules" else entries


def _place_of_rule(entry: Entry) -> tuple[str, int]:
    return str(entry.get("family") or ""), int(entry["priority"])


def _replaced(kind: Kind, present: list[Entry], after: list[Entry], before: list[Entry]) -> list[Entry]:
    """Return entries with those before a change in the place of those after it."""
    keys = {*map(kind.key, after), *map(kind.key, before)}
    return [*(entry for entry in present if kind.key(entry) not in keys), *before]


def _links(present: list[Entry], before: list[Entry], after: list[Entry]) -> list[Entry]:
    former = {str(link["name"]): link for link in before}
    added = {str(link["name"]) for link in after} - former.keys()
    remaining = ((str(link["name"]), link) for link in present if str(link["name"]) not in added)
    return [_link(link, former[name], name, after) if name in former else link for name, link in remaining]


def _link(present: Entry, before: Entry, name: str, after: list[Entry]) -> Entry:
    former = {**before}
    if "flags" in before:
        rest = [flag for flag in present.get("flags") or () if flag not in ("UP", "LOWER_UP")]
        former["flags"] = [*rest, *before["flags"]]
    if "addresses" in before:
        of_after = [entry for link in after for entry in link.get("addresses") or ()]
        addresses = present.get("addresses") or []
        former["addresses"] = _replaced(node_objects.addresses(name), addresses, of_after, before["addresses"])
    return {**present, **former}


def _with_values(settings: Entry, former: Entry) -> Entry:
    """Return settings with former values in their places."""
    nested = {key: _with_values(settings.get(key) or {}, value) for key, value in former.items() if isinstance(value, dict)}
    return {**settings, **former, **nested}
