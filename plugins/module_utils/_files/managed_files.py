# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files and links that this collection manages, and the folder that contains them."""

from __future__ import annotations

import hashlib
import os
import typing as t

from .._core.errors import Invalid, Refusal
from .._core.plan import Backend, ObjectText, Operation, Plan, Plane, Step
from . import files

# The first line of each file that the collection writes.
HEADING = "# Managed by the Ansible collection kubenode.datapath; changes made here are overwritten.\n"

# What an operator can do on a read-only file system, by the option that the files follow from.
_LIVE_ONLY = "set permanent to false, and run this again after each boot"
WITHOUT_FILES = {"path": _LIVE_ONLY, "permanent": _LIVE_ONLY, "immediate": "set immediate to false"}


class Checker(Backend, t.Protocol):
    """A backend that can check a text before it is written."""

    def checking(self, text: str) -> Operation:
        """Return the operation that fails if the text is not valid."""


class ManagedFile(t.NamedTuple):
    """The desired object at ``path``; None for nothing.

    signature: a file is this collection's if its text begins with the signature, a link if the signature is its target.
    accept: checks the text before it is written.
    """

    path: str
    desired: files.Content | files.Target | None
    signature: str
    accept: Checker | None = None

    def is_ours(self, current: files.State) -> bool:
        if isinstance(current, files.Content):
            return current.text.startswith(self.signature)
        return isinstance(current, files.Target) and current.path == self.signature


def text(path: str, desired: str | None, begins: str = "", accept: Checker | None = None) -> ManagedFile:
    """Return a file with ``desired`` below the collection's heading.

    ``begins``: the beginning of the text, which no other file of the collection has.
    """
    return ManagedFile(path, None if desired is None else files.Content(HEADING + desired), HEADING + begins, accept)


def link(path: str, target: str, desired: bool) -> ManagedFile:
    """Manage a symbolic link. One with another target is not the collection's, even if it is not desired."""
    return ManagedFile(path, files.Target(target) if desired else None, target)


class Made(t.NamedTuple):
    """A folder that this collection made. is_empty: it contains nothing but the marker."""

    path: str
    is_empty: bool


class ObservedFiles(t.NamedTuple):
    """The entries and the folder.

    states: the object at each path, None for nothing.
    folder: "missing", "ours" (we made it) or "theirs" (it is foreign).
    has_others: whether the folder contains anything besides the entries.
    left_over: paths whose temporary name a killed run left.
    made: if all entries are to be removed, the folders that this collection made: this one and those above it, the innermost
    first.
    read_only_at: where the read-only file system begins that the folder is on; empty if it is writable.
    """

    states: t.Mapping[str, files.State | None]
    folder: str
    has_others: bool
    left_over: tuple[str, ...]
    made: tuple[Made, ...]
    read_only_at: str = ""


class ManagedFiles:
    """Keeps entries of one folder as desired. The folder is made for the first entry, and removed with the last.

    Other resources of the same run may have entries in that folder, or in a folder within it. So removing a file always
    includes an attempt to remove the folder, which checks at that moment whether the folder is empty (files.RemoveFolder).

    option: the module's option that the entries follow from, for errors. instead: what the operator can do with it.
    claimed: paths of files that are this collection's whatever they contain, by other evidence.
    """

    plane = Plane.PERMANENT

    def __init__(
        self,
        backend: files.Files,
        entries: t.Sequence[ManagedFile],
        option: str = "path",
        instead: str = "set path to another path",
        claimed: t.Collection[str] = (),
    ) -> None:
        placed = [entry.path for entry in entries if entry.desired is not None]
        self.name = ", ".join(placed or [entries[0].path])
        self.backends = (backend, *(entry.accept for entry in entries if entry.accept))
        self._backend = backend
        self._entries = {entry.path: entry for entry in entries}
        self._folder = os.path.dirname(entries[0].path)
        self.is_desired = bool(placed)
        self._option = option
        self._instead = instead
        self._claimed = claimed

    def observe(self) -> ObservedFiles:
        names = {os.path.basename(path) for path in self._entries}
        folders = {} if self.is_desired else dict(self._folders())
        return ObservedFiles(
            {path: self._backend.read(path) for path in self._entries},
            self._observe_folder(),
            bool(self._backend.entries(self._folder) - names),
            tuple(path for path in dict.fromkeys((self._folder, *folders, *self._entries)) if self._backend.is_left_over(path)),
            tuple(Made(path, not self._backend.entries(path)) for path, is_there in folders.items() if is_there),
            self._backend.read_only_at(self._folder),
        )

    def _folders(self) -> t.Iterator[tuple[str, bool]]:
        """Yield the folder and those above it that we made, and whether each exists: a killed run may have removed some."""
        folder = self._folder
        while not (is_there := self._backend.is_folder(folder)) or self._backend.is_ours(folder):
            yield folder, is_there
            folder = os.path.dirname(folder)

    def _observe_folder(self) -> str:
        if self._backend.is_folder(self._folder):
            return "ours" if self._backend.is_ours(self._folder) else "theirs"
        path, parent = next(iter(self._entries)), os.path.dirname(self._folder)
        if self.is_desired and self._backend.read(self._folder) is not None:
            raise Invalid(self._option, path, f"in a folder; {self._folder} is not a folder")
        if self.is_desired and not self._backend.is_folder(parent):
            raise Invalid(self._option, path, f"in a folder that exists or whose parent exists; {parent} is not a folder")
        return "missing"

    def plan(self, observed: ObservedFiles) -> Plan:
        steps = [Step(f"clear what a killed run left beside {path}", files.Discard(path)) for path in observed.left_over]
        if observed.folder == "missing" and self.is_desired:
            steps.append(Step(f"make {self._folder}", files.MakeFolder(self._folder), files.RemoveFolder(self._folder)))
        pairs = [(entry, observed.states[path]) for path, entry in self._entries.items()]
        changes = [(entry, current) for entry, current in pairs if self._is_to_change(entry, current)]
        steps += [step for entry, current in changes for step in (*_checks(entry), _change(entry, current))]
        if not self.is_desired:
            steps += _folders_gone(observed.made, bool(changes or observed.left_over))
        if steps and observed.read_only_at:
            raise Refusal(
                f"{self.name} cannot be changed, because the file system at {observed.read_only_at} is read-only. Nothing was"
                f" changed. Make it writable, or {WITHOUT_FILES.get(self._option, self._instead)}"
            )
        return Plan(tuple(steps), _objects(changes) if changes else ())

    def reached(self, observed: ObservedFiles) -> ObservedFiles:
        """Return the state after the plan was applied, for a plan that starts from that state."""
        folder, made = observed.folder, observed.made
        if folder == "missing" and self.is_desired:
            folder, made = "ours", (Made(self._folder, False), *made)
        elif folder == "ours" and not self.is_desired and not observed.has_others:
            folder, made = "missing", made[1:]
        states = {path: entry.desired for path, entry in self._entries.items()}
        return observed._replace(states=states, folder=folder, left_over=(), made=made)

    def _is_to_change(self, entry: ManagedFile, current: files.State | None) -> bool:
        """Return whether the entry is to change. A foreign object is left alone if the entry is to be removed.

        Raises Refusal if it is to be written.
        """
        if current == entry.desired:
            return False
        is_claimed = entry.path in self._claimed and not isinstance(current, files.Other)
        if current is None or entry.is_ours(current) or is_claimed:
            return True
        if entry.desired is not None:
            raise Refusal(
                f"{entry.path} may not be replaced by this run: {_why_foreign(entry, current)}. Nothing was changed."
                f" Move it away, or {self._instead}"
            )
        return False


def settling(announced: ManagedFiles, settled: ManagedFiles, observed: ObservedFiles) -> t.Iterator[Step]:
    """Yield the steps that replace the record of a run's intended changes by the record of its completed changes."""
    for step in settled.plan(announced.reached(observed)).steps:
        yield step._replace(is_record=True)


def _folders_gone(made: t.Iterable[Made], is_emptying: bool) -> t.Iterator[Step]:
    """Yield the steps that remove the folders, the innermost first.

    is_emptying: whether something is removed from the innermost folder.
    """
    for path, is_empty in made:
        is_emptying = is_emptying or is_empty
        if is_emptying:
            yield Step(f"remove {path} if nothing else is in it", files.RemoveFolder(path), files.MakeFolder(path))


def _checks(entry: ManagedFile) -> t.Iterator[Step]:
    if entry.accept and isinstance(entry.desired, files.Content):
        yield Step(f"check {entry.path}", entry.accept.checking(entry.desired.text))


def _change(entry: ManagedFile, current: files.State | None) -> Step:
    back = files.Put(entry.path, current) if isinstance(current, (files.Content, files.Target)) else files.Remove(entry.path)
    if entry.desired is None:
        return Step(f"remove {entry.path}", files.Remove(entry.path), back)
    return Step(f"write {entry.path}", files.Put(entry.path, entry.desired), back)


def _objects(changes: t.Iterable[tuple[ManagedFile, files.State | None]]) -> tuple[ObjectText, ...]:
    """Return the texts of the entries that change."""
    return tuple(ObjectText(entry.path, *_states(entry.path, current, entry.desired)) for entry, current in changes)


def _why_foreign(entry: ManagedFile, current: files.State) -> str:
    if isinstance(current, files.Content):
        purpose = "it has another purpose, as " if current.text.startswith(HEADING) else ""
        return f"{purpose}its text does not begin with {entry.signature!r}"
    if isinstance(current, files.Target):
        return f"it is a link to {current.path}" + (" and so masks a unit" if current.path == "/dev/null" else "")
    return f"it is a {current.kind}"


def _states(path: str, before: files.State | None, after: files.State | None) -> tuple[str, str]:
    """Return the two states for the diff, with a line about mode and owner if these differ."""
    contents = [state for state in (before, after) if isinstance(state, files.Content)]
    has_moved = len({(state.mode, state.owner) for state in contents}) == 2
    first, second = ((_rights(path, state) if has_moved else "") + _readable(path, state) for state in (before, after))
    return first, second


def _rights(path: str, state: files.State | None) -> str:
    if not isinstance(state, files.Content):
        return ""
    return f"# {path}: mode {state.mode:04o}, owner {state.owner[0]}:{state.owner[1]}\n"


def _readable(path: str, state: files.State | None) -> str:
    """Return a link's target, a file's text, or size and hash of a file that is not readable text, such as a program."""
    if isinstance(state, files.Target):
        return f"# {path} -> {state.path}\n"
    if not isinstance(state, files.Content):
        return ""
    if state.text.isascii() and "\0" not in state.text:
        return state.text
    raw = state.text.encode("utf-8", "surrogateescape")
    return f"# {path}: {len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()}\n"
