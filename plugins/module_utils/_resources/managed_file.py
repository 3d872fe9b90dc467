# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A file of ours, and the folder that it stands in."""

from __future__ import annotations

import os
import typing as t

from .._converge import Plan, Plane, Step
from .._model.problem import Invalid, Refusal
from .._system import files

# The first line of each file of ours: by it a file is known as ours in a folder that is not.
HEADING = "# Managed by the Ansible collection kubenode.datapath; changes made here are overwritten.\n"


class Observed(t.NamedTuple):
    """The file and the folder.

    file: None where it is missing.
    folder: "missing", "ours" (we made it) or "theirs".
    neighbours: whether anything else of substance stands in the folder.
    left_over: paths where a killed run left something on its way.
    """

    file: files.Content | None
    folder: str
    neighbours: bool
    left_over: tuple[str, ...]


class ManagedFile:
    """Holds the file at ``path`` at ``text``, None for no such file.

    option: the module's option that names the path, for errors.
    accept: has the text checked before it is written; raises Problem where it is no good.
    """

    plane = Plane.PERMANENT

    def __init__(
        self,
        edge: files.Files,
        path: str,
        text: str | None,
        *,
        option: str = "path",
        accept: t.Callable[[str], None] | None = None,
    ) -> None:
        self.name = path
        self._edge = edge
        self._folder = os.path.dirname(path)
        self._wish = None if text is None else files.Content(HEADING + text)
        self._option = option
        self._accept = accept

    def observe(self) -> Observed:
        kind = self._edge.kind(self.name)
        if kind not in ("missing", "file"):
            raise Invalid(self._option, self.name, f"a regular file's path; a {kind} is there")
        return Observed(
            self._edge.read(self.name) if kind == "file" else None,
            self._observe_folder(),
            bool(self._edge.entries(self._folder) - {os.path.basename(self.name)}),
            tuple(path for path in (self._folder, self.name) if self._edge.is_left_over(path)),
        )

    def _observe_folder(self) -> str:
        kind, parent = self._edge.kind(self._folder), os.path.dirname(self._folder)
        if kind == "missing" and self._wish and self._edge.kind(parent) == "missing":
            raise Invalid(self._option, self.name, f"in a folder that is there or whose parent is; {parent} is not")
        if kind not in ("missing", "folder", "link"):
            raise Invalid(self._option, self.name, f"in a folder; {self._folder} is none")
        return "missing" if kind == "missing" else "ours" if self._edge.is_ours(self._folder) else "theirs"

    def plan(self, observed: Observed) -> Plan:
        steps = [
            Step(f"clear what a killed run left beside {path}", files.Discard(path)) for path in observed.left_over
        ]
        steps += self._removal(observed) if self._wish is None else self._writing(observed, self._wish)
        before, after = _shown(observed.file, self._wish)
        return Plan(tuple(steps), before, after)

    def _writing(self, observed: Observed, wish: files.Content) -> list[Step]:
        if observed.file == wish:
            return []
        if not self._is_ours(observed):
            raise Refusal(
                f"{self.name} is not a file of kubenode.datapath: it does not start with the line {HEADING.strip()!r}."
                f" Nothing was changed. Move it away, or set {self._option} to another path"
            )
        back = files.Remove(self.name) if observed.file is None else files.Write(self.name, observed.file)
        writing = Step(f"write {self.name}", files.Write(self.name, wish), back)
        if observed.folder == "missing":
            return [
                Step(f"make {self._folder}", files.MakeFolder(self._folder), files.RemoveFolder(self._folder)),
                writing,
            ]
        return [writing]

    def _removal(self, observed: Observed) -> list[Step]:
        steps = []
        if observed.file is not None and self._is_ours(observed):
            file = files.Remove(self.name), files.Write(self.name, observed.file)
            steps.append(Step(f"remove {self.name}", *file))
        if observed.folder == "ours" and not observed.neighbours:
            folder = files.RemoveFolder(self._folder), files.MakeFolder(self._folder)
            steps.append(Step(f"remove {self._folder}", *folder))
        return steps

    def _is_ours(self, observed: Observed) -> bool:
        """A file that is missing or empty is nobody's, and nothing is lost with it."""
        text = observed.file.text if observed.file else ""
        return observed.folder == "ours" or not text or text.startswith(HEADING)

    def perform(self, operation: files.Operation) -> None:
        if self._accept and isinstance(operation, files.Write) and operation.content == self._wish:
            self._accept(operation.content.text)
        self._edge.perform(operation)


def _shown(before: files.Content | None, after: files.Content | None) -> tuple[str, str]:
    """The two texts for the diff, with a line on mode and owner where these differ."""
    has_moved = before and after and (before.mode, before.owner) != (after.mode, after.owner)
    first, second = (
        "" if content is None else (_rights(content) if has_moved else "") + content.text for content in (before, after)
    )
    return first, second


def _rights(content: files.Content) -> str:
    return "# mode {:04o}, owner {}:{}\n".format(content.mode, *content.owner)
