# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards that warn if reverse-path filtering will not be as desired: missing links, a damaged record, files that win at boot."""

from __future__ import annotations

import os
import typing as t

from .._core import glob
from .._files import files
from .._platform import sysctl_files
from . import live_reverse_path, reverse_path


def missing_links(
    desired: reverse_path.DesiredFilter, links: t.Collection[str], path: str | None, is_immediate: bool
) -> t.Iterable[str]:
    """Warn about names that are no link of the running node and, in the immediate plane, about patterns that match none.

    path: the file that the next boot reads, None if there is none. is_immediate: whether the running kernel is managed.
    """
    so = ", so there is nothing to set in the running kernel" if is_immediate else ""
    then = f"{path} sets it when it appears" if path else "run this again when it is there"
    for name in desired.names:
        if name not in links:
            yield f"There is no link {name}{so}; {then}.{_advice(name, links)}"
    for pattern in desired.patterns if is_immediate else ():
        if not any(desired._replace(names=(), patterns=(pattern,)).covers(link) for link in links):
            yield f"No link matches {pattern}{so}; {then}."


def _advice(name: str, links: t.Iterable[str]) -> str:
    import difflib  # needed only for this warning

    nearest = difflib.get_close_matches(name, [link for link in links if link != "lo"], 1)
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


def boot_order(
    desired: reverse_path.DesiredFilter,
    path: str,
    texts: t.Mapping[str, str],
    setting: str = reverse_path.RP_FILTER,
    is_chosen: bool = True,
) -> t.Iterable[str]:
    """Warn about lines in other files that would win over our lines in ``path``, and about a path that is not read at boot.

    texts: of all files that a boot reads, by path. is_chosen: whether an option names the path.
    """
    unread = _unread(path, texts)
    if unread:
        yield f"{path} is not read at boot: {unread}"
        return
    occasions: dict[reverse_path.Overriding, list[str]] = {}
    for occasion, read in live_reverse_path.OCCASIONS:
        for overriding in reverse_path.overriding(desired, path, texts, read, setting):
            occasions.setdefault(overriding, []).append(occasion)
    for overriding, when in occasions.items():
        expected, remedy = _expectation(desired, overriding, is_chosen)
        outcome = f"would be {overriding.line.value}" if overriding.line.value is not None else "would not be set"
        scope = "on future links " if glob.is_glob(overriding.name) else ""
        occasion = " and ".join(when)
        yield (
            f"{occasion[0].upper()}{occasion[1:]}, line {overriding.line.line} of {overriding.line.path} wins over {path}:"
            f" {reverse_path.dotted(overriding.name, setting)} {scope}{outcome}; {expected}. {remedy}."
        )


def _unread(path: str, texts: t.Mapping[str, str]) -> str:
    """Return why no boot reads the path, with the next step; empty if one does."""
    folder, _slash, name = path.rpartition("/")
    if folder not in sysctl_files.FOLDERS or not name.endswith(".conf"):
        return (
            f"systemd-sysctl and procps read files named *.conf in {', '.join(sysctl_files.FOLDERS)}. Choose such a path, or load"
            " it in another way."
        )
    instead = sysctl_files.read_instead(path, texts)
    # /lib may be a link to /usr/lib: then both folders have the same file.
    if os.path.realpath(os.path.dirname(instead)) == os.path.realpath(folder):
        return ""
    return (
        f"{instead} has the same name, and systemd-sysctl and procps read only that one. Choose a path of another name, or remove"
        " that file."
    )


def _expectation(desired: reverse_path.DesiredFilter, overriding: reverse_path.Overriding, is_chosen: bool) -> tuple[str, str]:
    """Return what is expected of the setting, and the next step."""
    expected, remedy = f"{overriding.expected} is expected", "Remove that line"
    if overriding.name == reverse_path.ALL:
        expected = f"at most {expected}"
    elif overriding.expected > desired.mode:  # what other links keep from conf/all
        expected = f"at least {expected}"
    if overriding.line.path == sysctl_files.LAST_OF_PROCPS:
        pass  # nothing is read after it
    elif overriding.name == reverse_path.ALL and not desired.raise_all:
        remedy = (
            f"{remedy}, or set raise_all to true, which lowers it and gives every other link the value that it has through it"
        )
    elif is_chosen:
        remedy = f"{remedy}, or choose a path whose name sorts after it"
    return expected, remedy
