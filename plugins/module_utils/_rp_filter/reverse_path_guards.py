# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Guards that warn if reverse-path filtering will not be as desired: missing links, a damaged record, files that win at boot."""

from __future__ import annotations

import os
import typing as t

from .._core import glob
from .._files import files
from .._platform import sysctl_files
from . import reverse_path


class ReversePathLinks:
    """Warns about names that are no link of the running node and, in the immediate plane, about patterns that match none.

    path: the file that the next boot reads, None if there is none. is_immediate: whether the running kernel is managed.
    """

    def __init__(
        self, desired: reverse_path.DesiredFilter, links: t.Collection[str], path: str | None, is_immediate: bool = True
    ) -> None:
        self._desired = desired
        self._links = links
        self._path = path
        self._is_immediate = is_immediate

    def __call__(self) -> t.Iterable[str]:
        so = ", so there is nothing to set in the running kernel" if self._is_immediate else ""
        then = f"{self._path} sets it when it appears" if self._path else "run this again when it is there"
        for name in self._desired.names:
            if name not in self._links:
                yield f"There is no link {name}{so}; {then}.{self._advice(name)}"
        for pattern in self._desired.patterns if self._is_immediate else ():
            if not any(self._desired._replace(names=(), patterns=(pattern,)).covers(link) for link in self._links):
                yield f"No link matches {pattern}{so}; {then}."

    def _advice(self, name: str) -> str:
        import difflib  # needed only for this warning

        nearest = difflib.get_close_matches(name, [link for link in self._links if link != "lo"], 1)
        return f" If {nearest[0]} is meant, correct interfaces." if nearest else ""


def unreadable_record(backend: files.Files, path: str) -> t.Iterable[str]:
    """Warn about lines in the record at ``path`` that this collection did not write. Such lines are skipped."""
    record = backend.read(path)
    numbers = reverse_path.unreadable(record.text) if isinstance(record, files.Content) else []
    if numbers:
        lines = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        yield (
            f"{path}, {lines}: expected an entry written by this collection, but found something else, which is"
            " ignored. If it was the entry of a setting that this collection has changed, the former value is lost, and"
            " state absent leaves the current value. Compare the settings with what you expect."
        )


class BootOrder:
    """Warns about lines in other files that would win over our lines in ``path``, and about a path that is not read at boot.

    is_chosen: whether an option names the path.
    """

    def __init__(
        self,
        desired: reverse_path.DesiredFilter,
        path: str,
        files: t.Mapping[str, str],
        setting: str = reverse_path.RP_FILTER,
        is_chosen: bool = True,
    ) -> None:
        self._desired = desired
        self._path = path
        self._files = files
        self._setting = setting
        self._is_chosen = is_chosen

    def __call__(self) -> t.Iterable[str]:
        folder, _slash, name = self._path.rpartition("/")
        if folder not in sysctl_files.FOLDERS or not name.endswith(".conf"):
            yield (
                f"{self._path} is not read at boot: systemd-sysctl and procps read files named *.conf in"
                f" {', '.join(sysctl_files.FOLDERS)}. Choose such a path, or load it in another way."
            )
            return
        instead = sysctl_files.read_instead(self._path, self._files)
        # /lib may be a link to /usr/lib: then both folders have the same file.
        if os.path.realpath(os.path.dirname(instead)) != os.path.realpath(folder):
            yield (
                f"{self._path} is not read at boot: {instead} has the same name, and systemd-sysctl and procps read only"
                " that one. Choose a path of another name, or remove that file."
            )
            return
        occasions: dict[reverse_path.Overriding, list[str]] = {}
        for occasion, read in (
            ("At the next boot (systemd-sysctl)", sysctl_files.by_systemd),
            ("at the next `sysctl --system`", sysctl_files.by_procps),
        ):
            for overriding in reverse_path.overriding(self._desired, self._path, self._files, read, self._setting):
                occasions.setdefault(overriding, []).append(occasion)
        for overriding, when in occasions.items():
            yield self._warning(overriding, " and ".join(when))

    def _warning(self, overriding: reverse_path.Overriding, when: str) -> str:
        outcome = f"would be {overriding.line.value}" if overriding.line.value is not None else "would not be set"
        scope = "on future links " if glob.is_glob(overriding.name) else ""
        expected, remedy = f"{overriding.expected} is expected", "Remove that line"
        if overriding.name == reverse_path.ALL:
            expected = f"at most {expected}"
        elif overriding.expected > self._desired.mode:  # what other links keep from conf/all
            expected = f"at least {expected}"
        if overriding.line.path == sysctl_files.LAST_OF_PROCPS:
            pass  # nothing is read after it
        elif overriding.name == reverse_path.ALL and not self._desired.raise_all:
            remedy = f"{remedy}, or set raise_all to true"
        elif self._is_chosen:
            remedy = f"{remedy}, or choose a path whose name sorts after it"
        return (
            f"{when[0].upper()}{when[1:]}, line {overriding.line.line} of {overriding.line.path} wins over {self._path}:"
            f" {reverse_path.dotted(overriding.name, self._setting)} {scope}{outcome}; {expected}. {remedy}."
        )
