# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Files of ours, and the folder that they stand in."""

from __future__ import annotations

import hashlib
import os
import typing as t

from .._converge import Plan, Plane, Step
from .._model.problem import Invalid, Refusal
from .._system import files

# The first line of each file of ours: by it a file is known as ours in a folder that is not.
HEADING = "# Managed by the Ansible collection kubenode.datapath; changes made here are overwritten.\n"


class File(t.NamedTuple):
    """What shall stand at ``path``: ``text`` below our heading, or nothing, for None.

    accept: has the whole text checked before it is written; raises Problem where it is no good.
    """

    path: str
    text: str | None
    accept: t.Callable[[str], None] | None = None

    @property
    def content(self) -> files.Content | None:
        return None if self.text is None else files.Content(HEADING + self.text)


class Observed(t.NamedTuple):
    """The files and the folder.

    found: what stands at each path, None for nothing.
    folder: "missing", "ours" (we made it) or "theirs".
    has_others: whether anything else of substance stands in the folder.
    left_over: paths where a killed run left something on its way.
    """

    found: t.Mapping[str, files.Content | None]
    folder: str
    has_others: bool
    left_over: tuple[str, ...]


class ManagedFiles:
    """Holds files of one folder as wished; the folder comes with the first of them and goes with the last.

    option: the module's option that names the paths, for errors.
    """

    plane = Plane.PERMANENT

    def __init__(self, edge: files.Files, wishes: t.Sequence[File], option: str = "path") -> None:
        wished = [file.path for file in wishes if file.text is not None]
        self.name = ", ".join(wished or [wishes[0].path])
        self._edge = edge
        self._wishes = {file.path: file for file in wishes}
        self._folder = os.path.dirname(wishes[0].path)
        self._keeps_folder = bool(wished)
        self._option = option

    def observe(self) -> Observed:
        folder = self._observe_folder()
        names = {os.path.basename(path) for path in self._wishes}
        return Observed(
            {path: self._observe_file(path) for path in self._wishes},
            folder,
            bool(self._edge.entries(self._folder) - names),
            tuple(path for path in (self._folder, *self._wishes) if self._edge.is_left_over(path)),
        )

    def _observe_folder(self) -> str:
        kind, parent = self._edge.kind(self._folder), os.path.dirname(self._folder)
        path = next(iter(self._wishes))
        if kind == "missing" and self._keeps_folder and self._edge.kind(parent) == "missing":
            raise Invalid(self._option, path, f"in a folder that is there or whose parent is; {parent} is not")
        if kind not in ("missing", "folder", "link"):
            raise Invalid(self._option, path, f"in a folder; {self._folder} is none")
        return "missing" if kind == "missing" else "ours" if self._edge.is_ours(self._folder) else "theirs"

    def _observe_file(self, path: str) -> files.Content | None:
        kind = self._edge.kind(path)
        if kind not in ("missing", "file"):
            raise Invalid(self._option, path, f"a regular file's path; a {kind} is there")
        return self._edge.read(path) if kind == "file" else None

    def plan(self, observed: Observed) -> Plan:
        steps = [
            Step(f"clear what a killed run left beside {path}", files.Discard(path)) for path in observed.left_over
        ]
        if observed.folder == "missing" and self._keeps_folder:
            steps.append(Step(f"make {self._folder}", files.MakeFolder(self._folder), files.RemoveFolder(self._folder)))
        changes = [(file, observed.found[file.path]) for file in self._wishes.values()]
        changes = [
            (file, found) for file, found in changes if found != file.content and self._is_to_change(file, observed)
        ]
        steps += [_change(file, found) for file, found in changes]
        if observed.folder == "ours" and not self._keeps_folder and not observed.has_others:
            back = files.MakeFolder(self._folder)
            steps.append(Step(f"remove {self._folder}", files.RemoveFolder(self._folder), back))
        shown = [_shown(file.path, found, file.content) for file, found in changes]
        before, after = ("\n".join(filter(None, texts)) for texts in zip(*shown)) if shown else ("", "")
        return Plan(tuple(steps), before, after)

    def _is_to_change(self, file: File, observed: Observed) -> bool:
        """A stranger's file is left where ours shall go, and refused where ours shall come."""
        found = observed.found[file.path]
        # A file that is empty is nobody's, and nothing is lost with it.
        if found is None or observed.folder == "ours" or not found.text or found.text.startswith(HEADING):
            return True
        if file.text is not None:
            raise Refusal(
                f"{file.path} is not a file of kubenode.datapath: it does not start with the line {HEADING.strip()!r}."
                f" Nothing was changed. Move it away, or set {self._option} to another path"
            )
        return False

    def perform(self, operation: files.Operation) -> None:
        file = self._wishes.get(operation.path)
        if file and file.accept and isinstance(operation, files.Write) and operation.content == file.content:
            file.accept(operation.content.text)
        self._edge.perform(operation)


def _change(file: File, found: files.Content | None) -> Step:
    back = files.Remove(file.path) if found is None else files.Write(file.path, found)
    if file.content is None:
        return Step(f"remove {file.path}", files.Remove(file.path), back)
    return Step(f"write {file.path}", files.Write(file.path, file.content), back)


def _shown(path: str, before: files.Content | None, after: files.Content | None) -> tuple[str, str]:
    """The two texts for the diff, with a line on mode and owner where these differ."""
    has_moved = before and after and (before.mode, before.owner) != (after.mode, after.owner)
    rights = [_rights(path, one) if has_moved and one else "" for one in (before, after)]
    return rights[0] + _readable(path, before), rights[1] + _readable(path, after)


def _rights(path: str, content: files.Content) -> str:
    return f"# {path}: mode {content.mode:04o}, owner {content.owner[0]}:{content.owner[1]}\n"


def _readable(path: str, content: files.Content | None) -> str:
    """A file's text, or what tells one from another where it is a program or something else that nobody reads."""
    if content is None:
        return ""
    if content.text.isascii() and "\0" not in content.text:
        return content.text
    raw = content.text.encode("utf-8", "surrogateescape")
    return f"# {path}: {len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()}\n"
