# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverse-path filtering: drops a packet if the node would not send the answer by the link that the packet came in by.

The kernel takes the larger of two numbers, ``max(conf/all, conf/LINK)`` (include/linux/inetdevice.h, IN_DEV_RPFILTER): 0 off,
1 strict (RFC 3704 section 2.2), 2 loose (section 2.4). So conf/all can make a desired mode impossible.

A setting that was never written follows conf/default whenever that is written (net/ipv4/devinet.c, devinet_copy_dflt_conf).
One write, of any value, pins it until the link goes. An address given to the link pins it as well, but many links of pods and
clouds never get one. The kernel does not show which settings are pinned. For this reason there is a record of the settings that
this collection has written during this boot, by the link's index.
"""

from __future__ import annotations

import itertools
import json
import re
import typing as t

from .._core import glob
from .._core.errors import Invalid, Refusal
from .._core.names import INTERFACE_LENGTH
from .._platform import sysctl_files

MODES = {"off": 0, "strict": 1, "loose": 2}
ALL, DEFAULT = "all", "default"
# Names that are no links, and the loopback: never matched by a pattern, refused as a name.
RESERVED = (ALL, DEFAULT, "lo")


# Begins the text of our files in sysctl.d(5), below the heading of managed_files.
HEADING = "# Reverse-path filtering"

# A link's name in an option, or a pattern of names. UNSAYABLE: characters in a name that no line of sysctl.d(5) can express.
_WORD = re.compile(r"([A-Za-z0-9_.+@~*?-]|\[!?[A-Za-z0-9_.+@~-]+\])+")
UNSAYABLE = {*glob.CHARACTERS, "\\", "="}


# Settings that a link and conf/all both have, and of which the larger counts: the mode, and whether the lookup uses a packet's
# mark (include/linux/inetdevice.h, IN_DEV_SRC_VMARK).
RP_FILTER, SRC_VALID_MARK = "rp_filter", "src_valid_mark"


def key(name: str, setting: str = RP_FILTER) -> str:
    """Return the setting's path below /proc/sys; in this form a dot in a link's name is a dot."""
    return f"net/ipv4/conf/{name}/{setting}"


def dotted(name: str, setting: str = RP_FILTER) -> str:
    """Return the setting as sysctl(8) prints it: a dot in a link's name becomes a slash."""
    return f"net.ipv4.conf.{name.replace('.', '/')}.{setting}"


class DesiredFilter(t.NamedTuple):
    """The desired state: ``mode`` on the links ``names`` and on those that match one of ``patterns``."""

    mode: int
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    raise_all: bool

    @classmethod
    def from_options(cls, options: t.Mapping[str, t.Any]) -> DesiredFilter:
        """Return the desired state in a module's options. Raises Invalid for the first option that cannot be used."""
        if options["mode"] is None:
            raise Invalid("mode", None, f"one of {', '.join(MODES)} where state is present")
        if not options["interfaces"]:
            raise Invalid("interfaces", options["interfaces"], "a list of at least one link or pattern")
        words = [_word(f"interfaces[{index}]", word) for index, word in enumerate(options["interfaces"])]
        names = {word for word in words if not glob.is_glob(word)}
        return cls(MODES[options["mode"]], tuple(sorted(names)), tuple(sorted({*words} - names)), options["raise_all"])

    @property
    def mode_name(self) -> str:
        return next(name for name, number in MODES.items() if number == self.mode)

    def covers(self, link: str) -> bool:
        if link in RESERVED:
            return False
        return link in self.names or any(glob.matches(pattern, link) for pattern in self.patterns)

    def contains(self, word: str) -> bool:
        """Return whether the desired state covers a name, or certainly covers all names that a pattern may match."""
        is_within = (pattern == word or (pattern[-1] == "*" and word.startswith(pattern[:-1])) for pattern in self.patterns)
        return any(is_within) if glob.is_glob(word) else self.covers(word)

    def globs(self) -> dict[str, list[str]]:
        """Map each pattern to globs that match the same names except the reserved ones, which a pattern in a file would set as
        well."""
        cut = {pattern: glob.without(glob.parse(pattern), (*RESERVED, "")) for pattern in self.patterns}
        return {pattern: [glob.text(part) for part in parts] for pattern, parts in cut.items()}


def _word(option: str, word: str) -> str:
    if not _WORD.fullmatch(word) or word in (".", "..") or not _can_match(word):
        allowed = f"a link's name of 1 to {INTERFACE_LENGTH} letters, digits and _.+@~-, or a pattern of these and *?[]!"
        raise Invalid(option, word, allowed)
    if not glob.without(glob.parse(word), RESERVED):
        raise Invalid(option, word, f"a link or a pattern of links; {', '.join(RESERVED)} are not to be set")
    return word


def _can_match(word: str) -> bool:
    """Return whether a link can have such a name: the word is not too long, and has no class without members."""
    singles = [part for part in glob.parse(word) if part is not glob.STAR]
    return len(singles) <= INTERFACE_LENGTH and not any(part.is_empty() for part in singles)


# The permanent plane


def sysctl_text(desired: DesiredFilter, links: t.Collection[str], other_files: t.Mapping[str, str]) -> str:
    """Return the desired state as a file of sysctl.d(5).

    links: the current links. other_files: the texts of all other files that are read, by path.
    A link whose name is known gets an explicit line, which wins over any glob in any file. A glob is for future links, and for
    names that no line can express. It begins with a dash, so that tools without globs ignore it.
    """
    rest = sysctl_files.by_systemd(other_files)
    lines = _raised(desired, rest, {path for path, text in other_files.items() if desired_in(text)}) if desired.raise_all else []
    names = {_name(assignment) for assignment in rest.assignments if not assignment.is_glob}
    explicit = {
        *desired.names,
        *(name for name in {*links, *names} if desired.covers(name) and not UNSAYABLE & {*name}),
    }
    for pattern, globs in desired.globs().items():
        lines += [f"# {pattern} without {', '.join(RESERVED)}:"] if globs != [pattern] else []
        lines += [_glob_line(pattern, desired.mode, rest) for pattern in globs]
    lines += [f"{key(name)} = {desired.mode}" for name in sorted(explicit)]
    words = " ".join((*desired.names, *desired.patterns))
    return "\n".join((f"{HEADING} {desired.mode_name} on: {words}", *lines, ""))


def desired_in(text: str) -> DesiredFilter | None:
    """Return the desired state that a file's text was made for, without raise_all; None if sysctl_text() did not make the
    text."""
    match = re.search(f"^{HEADING} ({'|'.join(MODES)}) on: (.+)$", text, re.MULTILINE)
    try:
        return match and DesiredFilter.from_options({"mode": match[1], "interfaces": match[2].split(), "raise_all": False})
    except Invalid:
        return None


def at_boot(link: str, files: t.Mapping[str, str]) -> int:
    """Return the effective mode that ``files``, texts by path, give to a link at the next boot."""
    configuration = sysctl_files.by_systemd(files)
    link_value, default, all_ = (configuration.value(key(name)) for name in (link, DEFAULT, ALL))
    return max(all_ or 0, link_value if link_value is not None else default or 0)


def _name(assignment: sysctl_files.Assignment) -> str:
    """Return the name or pattern in a line about rp_filter of links; empty if the line is about something else."""
    parts = assignment.key.split("/")
    name = parts.pop(3) if len(parts) == 5 else ""
    return name if _can_match(name) and all(map(glob.matches, parts, ("net", "ipv4", "conf", RP_FILTER))) else ""


def _glob_line(pattern: str, value: int, configuration: sysctl_files.Configuration) -> str:
    """Return a line that counts after all globs of ``configuration`` that are read before it, and does not change their order.

    systemd-sysctl keeps one line for each spelling of a key. If a key is repeated, the values decide whether the line keeps its
    first place. So our line has a spelling that no other line has.
    """
    taken = {assignment.key for assignment in configuration.assignments}
    words = (f"con[{'f' * times}]" if times else "conf" for times in itertools.count())
    spellings = (key(pattern).replace("conf", word, 1) for word in words)
    return f"-{next(spelling for spelling in spellings if spelling not in taken)} = {value}"


def _raised(desired: DesiredFilter, rest: sysctl_files.Configuration, own_paths: t.Collection[str]) -> list[str]:
    """Return the lines that lower conf/all, if other files set it too high for the mode, and that give its old value to all other
    links.

    own_paths: of the collection's other sets. Their values already count on the lower conf/all, so they are not raised. Their
    globs are repeated, so that they keep their order among the other globs.
    """
    all_value = rest.value(key(ALL)) or 0
    if all_value <= desired.mode:
        return []
    lines = []
    for assignment in rest.assignments:
        name, is_ours = _name(assignment), assignment.path in own_paths
        if assignment.number is None or name in ("", *RESERVED) or desired.contains(name):
            continue
        value = assignment.number if is_ours else max(all_value, assignment.number)
        if assignment.is_glob:
            lines.append(_glob_line(name, value, rest))
        elif not is_ours:
            lines.append(f"{key(name)} = {value}")
    lo, default = rest.value(key("lo")), max(all_value, rest.value(key(DEFAULT)) or 0)
    lines += [f"{key('lo')} = {max(all_value, lo)}"] if lo is not None else []  # else it follows conf/default
    return [*lines, f"{key(DEFAULT)} = {default}", f"{key(ALL)} = {desired.mode}"]


class Overriding(t.NamedTuple):
    """A line that would give ``name`` (a link, a pattern or conf/all) another value than ``expected``."""

    name: str
    line: sysctl_files.Assignment
    expected: int


def overriding(
    desired: DesiredFilter,
    path: str,
    files: t.Mapping[str, str],
    read: t.Callable[[t.Mapping[str, str]], sysctl_files.Configuration],
    setting: str = RP_FILTER,
) -> t.Iterator[Overriding]:
    """Yield the lines that win over the file at ``path``. read: how the tool in question reads files."""
    alone, both = read({path: files[path]}), read(files)
    for line in alone.assignments:
        winner = None if line.is_glob or line.key == key(ALL, setting) else both.winner(line.key)
        if winner and winner.number != line.number:
            yield Overriding(line.key.split("/")[3], winner, line.number or 0)
    globs = [line for line in both.assignments if line.is_glob and line.number is not None and _name(line)]
    later = globs[max((place for place, line in enumerate(globs, 1) if line.path == path), default=len(globs)) :]
    for pattern, parts in desired.globs().items():
        rivals = (line for line in later if line.number != desired.mode and _overlaps(_name(line), parts))
        yield from (Overriding(pattern, line, desired.mode) for line in rivals)
    raised = {_name(line): line.number or 0 for line in alone.assignments if line.is_glob}
    for line in later:
        if (line.number or 0) < raised.get(_name(line), 0) > desired.mode:
            yield Overriding(_name(line), line, raised[_name(line)])
    winner = both.winner(key(ALL, setting))
    if winner and (winner.number or 0) > desired.mode:
        yield Overriding(ALL, winner, desired.mode)


def _overlaps(pattern: str, words: t.Iterable[str]) -> bool:
    return any(glob.overlap(glob.parse(pattern), glob.parse(other)) for other in words)


# The immediate plane


class RecordEntry(t.NamedTuple):
    """The values that this collection has written to one setting during this boot.

    ifindex: the link's index; 0 for conf/all and conf/default.
    holder: the set that the entry belongs to, named by the path of its file.
    before: the value that was replaced.
    value: the value written last, None for none yet. next: the value about to be written, None when that is done.
    named: whether the holder names the link; False for a setting that was written because conf/all was lowered.
    """

    name: str
    ifindex: int
    holder: str
    before: int
    value: int | None = None
    next: int | None = None
    named: bool = True

    def is_ours(self, current: int) -> bool:
        """Return whether this collection may have written the value. Any other value was written later by another program."""
        return current in (self.value, self.next)


Record = tuple[RecordEntry, ...]


def record_text(record: t.Iterable[RecordEntry]) -> str | None:
    """Return the record as lines of JSON; None for an empty one."""
    entries = sorted(record, key=lambda entry: (entry.ifindex, entry.name, entry.holder))
    return "".join(f"{json.dumps(entry._asdict())}\n" for entry in entries) or None


def record_from(text: str) -> Record:
    """Return the entries in a record's text. Other lines are skipped, so that absent works without them."""
    return tuple(entry for entry in map(_entry_from, text.splitlines()) if entry)


def unreadable(text: str) -> list[int]:
    """Return the numbers of the lines in a record's text that are neither an entry nor a comment."""
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if not line.startswith("#") and _entry_from(line) is None]


def _entry_from(line: str) -> RecordEntry | None:
    try:
        entry = RecordEntry(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    are_words = isinstance(entry.name, str) and isinstance(entry.holder, str) and isinstance(entry.named, bool)
    numbers = [number for number in (entry.value, entry.next) if number is not None]
    return entry if are_words and all(map(_is_int, (entry.ifindex, entry.before, *numbers))) else None


def _is_int(value: object) -> bool:
    """Return whether the value fits the kernel's ``int``."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


class Settings(t.NamedTuple):
    """The kernel's settings and our record of them.

    links: indexes by name. values: by name, of conf/all, conf/default and the links that were asked for.
    setting: which of a link's settings these are.
    """

    links: t.Mapping[str, int]
    values: t.Mapping[str, int]
    record: Record
    setting: str = RP_FILTER

    def ifindex(self, name: str) -> int:
        return self.links.get(name, 0)

    def entries(self, holder: str) -> dict[str, RecordEntry]:
        """Return the record's entries for current settings, by name: the entry of ``holder``, else another holder's desired
        value."""
        return {**self.desired_by_others(holder), **self.held(holder)}

    def held(self, holder: str) -> dict[str, RecordEntry]:
        """Return the record's entries of ``holder`` for current settings, by name."""
        return self._there(entry for entry in self.record if entry.holder == holder)

    def desired_by_others(self, holder: str) -> dict[str, RecordEntry]:
        """Return the entries of other holders that name the link, by name. All of them for one link have the same value."""
        return self._there(entry for entry in self.record if entry.named and entry.holder != holder)

    def _there(self, entries: t.Iterable[RecordEntry]) -> dict[str, RecordEntry]:
        """Find a link's entry by its index, so that a renamed link keeps its pin."""
        by_identity = {entry.ifindex or entry.name: entry for entry in entries}
        identities = {name: self.ifindex(name) or name for name in self.values}
        return {name: by_identity[identity] for name, identity in identities.items() if identity in by_identity}

    def effective(self, name: str) -> int:
        return max(self.values[ALL], self.values[name])

    def shown(self, name: str) -> dict[str, int]:
        return {"value": self.values[name], ALL: self.values[ALL], "effective": self.effective(name)}


class Change(t.NamedTuple):
    """One write: the current and the desired value. ``entry`` is the record's entry after the write, None for none."""

    name: str
    current: int
    desired: int
    entry: RecordEntry | None


class Difference(t.NamedTuple):
    """The difference between the settings and the desired state: the writes in their order, and the record after them.

    announced: the record during the writes. If the run is killed then, the record tells the next run which values may be its own.
    """

    changes: tuple[Change, ...]
    announced: Record
    record: Record

    def after(self, settings: Settings) -> Settings:
        """Return these settings as they are when all changes are written, with the new record."""
        written = {change.name: change.desired for change in self.changes}
        return settings._replace(values={**settings.values, **written}, record=self.record)


def difference(
    desired: DesiredFilter | None, holder: str, settings: Settings, setters: t.Callable[[int], str] = lambda _mode: ""
) -> Difference:
    """Return how to reach the desired state of ``holder``; desired None releases all its settings.

    Raises Refusal if conf/all or another holder makes that impossible.

    setters: returns the sentence about the files that set conf/all above a mode.
    """
    entries = settings.entries(holder)
    current = settings.held(holder)
    own_entries = {name: entry for name, entry in current.items() if entry.is_ours(settings.values[name])}
    if desired and _original(own_entries, settings) > desired.mode and not desired.raise_all:
        raise _impossible(desired, _original(own_entries, settings), setters(desired.mode))
    targets = _targets(desired, entries, own_entries, holder, settings) if desired else {}
    needed = settings.desired_by_others(holder)
    for name, target in targets.items():
        if target.named and name in needed and target.value not in (needed[name].value, needed[name].next):
            raise _conflict(dotted(name, settings.setting), target.value, needed[name])
    claims = (_claim(name, target, holder, settings, entries.get(name)) for name, target in targets.items())
    changes = [change for change in claims if change]
    taken = {change.name: change.entry for change in changes if change.entry}
    leaving = {name: entry for name, entry in own_entries.items() if name not in targets}
    if desired and not changes and not leaving:
        return Difference((), settings.record, settings.record)  # entries of links that are gone do no harm

    indexes = {0, *settings.links.values()}
    gone = [entry for entry in settings.record if entry.holder == holder and (desired is None or entry.ifindex not in indexes)]
    moving = {*leaving.values(), *gone, *(current[change.name] for change in changes if change.name in current)}
    unmoved = [entry for entry in settings.record if entry not in moving]
    announced = [entry for entry in gone if entry not in leaving.values()]
    announced += [entry._replace(next=entry.before) for entry in leaving.values()]
    announced += [_announced(entry, entries.get(name)) for name, entry in taken.items()]
    restoring = [Change(name, settings.values[name], entry.before, None) for name, entry in leaving.items() if name not in needed]
    changes += [change for change in restoring if change.current != change.desired]
    return Difference(tuple(sorted(changes, key=_order)), (*unmoved, *announced), (*unmoved, *taken.values()))


class _Target(t.NamedTuple):
    value: int
    named: bool = False


def _targets(
    desired: DesiredFilter,
    entries: t.Mapping[str, RecordEntry],
    own_entries: t.Mapping[str, RecordEntry],
    holder: str,
    settings: Settings,
) -> dict[str, _Target]:
    """Return the targets by name: for the desired links, and for the settings that must change so that the mode is possible
    there.

    own_entries: those of ``holder`` whose value is current, so that no other program has changed it since.
    """
    by_option = {link: _Target(desired.mode, True) for link in settings.links if desired.covers(link)}
    all_value, original = settings.values[ALL], _original(own_entries, settings)
    if original <= desired.mode:
        # The program that changed conf/all after we lowered it found the other links as they are now.
        is_overruled = ALL in entries and entries[ALL].holder == holder and ALL not in own_entries
        held = {name: _Target(settings.values[name]) for name in own_entries} if is_overruled else {}
        return {**held, **by_option}
    # Every other link gets the value that it had through conf/all as its own; future links get it from conf/default.
    held = {name: _Target(max(original, entry.before)) for name, entry in own_entries.items()}
    if all_value > desired.mode:
        lower = (name for name, value in settings.values.items() if value < all_value)
        held.update({name: _Target(all_value) for name in lower if name not in entries or entries[name].holder == holder})
    return {**held, **by_option, ALL: _Target(desired.mode)}


def _original(own_entries: t.Mapping[str, RecordEntry], settings: Settings) -> int:
    """Return conf/all as it is without this collection."""
    return own_entries[ALL].before if ALL in own_entries else settings.values[ALL]


def _impossible(desired: DesiredFilter, current: int, setters: str) -> Refusal:
    links = ", ".join((*desired.names, *desired.patterns))
    return Refusal(
        f"{dotted(ALL)} is {current} and the kernel takes the larger of it and a link's own value: mode {desired.mode_name}"
        f" ({desired.mode}) is not possible on {links} while it is above {desired.mode}. {setters} Nothing was changed. Lower it,"
        " or set raise_all to true: then every other link, and conf/default for future links, is first raised to the value that"
        " it has through conf/all"
    )


def _claim(name: str, target: _Target, holder: str, settings: Settings, old: RecordEntry | None) -> Change | None:
    """Return the write that gives a setting its target value and pins it; None if the holder has done that already.

    A holder that joins others has the same former value as they; the last of them to release the setting restores it.
    """
    current = settings.values[name]
    if old and old.holder == holder and old.next is None and old.value == current == target.value:
        return None
    before = old.before if old and old.is_ours(current) else current
    entry = RecordEntry(name, settings.ifindex(name), holder, before, target.value, None, target.named)
    return Change(name, current, target.value, entry)


def _conflict(setting: str, desired: int, entry: RecordEntry) -> Refusal:
    return Refusal(
        f"{setting} should be {desired}, but the set whose path is {entry.holder} keeps it at {entry.value}."
        " Nothing was changed. Name each link in one set only, or remove the other set with state absent and that path"
    )


def _announced(entry: RecordEntry, old: RecordEntry | None) -> RecordEntry:
    return entry._replace(value=old.value if old else None, next=entry.value)


def _order(change: Change) -> tuple[int, str]:
    """Order the writes so that no other link is filtered less in between: conf/all rises first and falls last.

    A write to conf/default also changes all links that are not pinned, so it comes after the links.
    """
    if change.name == ALL:
        return (0 if change.desired > change.current else 3, "")
    return (2 if change.name == DEFAULT else 1, change.name)


def lines(settings: Settings, difference: Difference, is_after: bool) -> str:
    """Return the settings that change, in the language of sysctl(8), before the change or after it."""
    return "".join(f"{_line(settings, change, is_after)}\n" for change in difference.changes)


def _line(settings: Settings, change: Change, is_after: bool) -> str:
    setting = f"{dotted(change.name, settings.setting)} = {settings.values[change.name]}"
    note = "" if change.name in (ALL, DEFAULT) else f"effective {settings.effective(change.name)}"
    is_pinning = change.current == change.desired and not is_after
    notes = ", ".join(filter(None, (note, "not pinned" if is_pinning else "")))
    return f"{setting}  # {notes}" if notes else setting
