# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Loads, removes and checks tables with nft, and parses nft's errors. A separate file, because most runs change nothing."""

from __future__ import annotations

import re

from .._core.errors import Failure, Uncertain
from .._netlink import nfnetlink
from .._platform import kernel, process
from . import nft_table
from .nft_backend import Check, Nft, Replace, without_readings

# unshare is not permitted to create a namespace, or the kernel does not support nft's netlink messages.
NO_CHECK = re.compile(r"^unshare:|[Nn]etlink|Operation not supported|Protocol not supported", re.MULTILINE)


def perform(nft: Nft, operation: Replace | Check) -> None:
    """See Nft.perform()."""
    if isinstance(operation, Check):
        _check(nft, operation.script)
    else:
        _replace(nft, operation)


def differences(nft: Nft, operation: Replace) -> list[str]:
    """See Nft.verify()."""
    table = f"table {operation.family} {operation.name}"
    if not operation.text:
        return [f"{table} is still there"] if nft.unread(operation.family, operation.name) else []
    if nft.read(operation.family, operation.name) is None:
        return [f"{table} is not there"]
    found = nft.text(operation.family, operation.name)
    return [] if without_readings(found) == without_readings(operation.text) else [f"{table} is not as it was"]


def _replace(nft: Nft, operation: Replace) -> None:
    """Run one ``nft -f``: the kernel applies all of it or nothing. A table is removed without nft, which may be broken.

    Raises Failure if nft or the kernel refuses the change, Uncertain if nft was killed.
    """
    if not operation.text:
        if nft.unread(operation.family, operation.name):
            nfnetlink.delete_table(operation.family, operation.name)
        return
    done = nft.run(["-f", "-"], nft_table.replacement(operation.family, operation.name, operation.text))
    if done.rc != 0:
        kind = Uncertain if _was_killed(done) else Failure
        raise kind(f"nft refused table {operation.family} {operation.name}: {complaint(done)}")


def _check(nft: Nft, script: str) -> None:
    """Check a script with ``nft -c`` in a new network namespace, where nft cannot see or change the node's tables.

    Raises Failure if nft refuses the script. Warns if the check is not possible: nft or unshare is not installed (an
    image may get nft later), unshare is not permitted, or the running kernel is not the node's.
    """
    unshare = process.find("unshare")
    if process.find("nft") is None:
        lack = "nft is not installed"
    elif unshare is None:
        lack = "unshare (util-linux) is not installed"
    elif not kernel.is_ready("nf_tables"):
        lack = "nf_tables is not loaded, according to /proc"
    else:
        lack = _lack(nft, script, unshare)
    if lack:
        nft.warn(f"The ruleset was written but not checked by nft: {lack}.")


def _lack(nft: Nft, script: str, unshare: str) -> str:
    """Why nft could not check the script; empty if nft accepts it. Raises Failure if nft refuses it."""
    done = nft.run(["-c", "-f", "-"], script, through=[unshare, "--net"])
    if done.rc == 0:
        return ""
    if NO_CHECK.search(done.stderr):
        return complaint(done)
    raise Failure(f"nft refused the ruleset: {complaint(done)}")


def _was_killed(done: process.Completed) -> bool:
    return done.rc < 0 or done.rc > 128


def complaint(done: process.Completed) -> str:
    """nft's error messages on one line, without the carets that mark the position of the error."""
    if _was_killed(done):
        # netfilter.org commit be737a1986bf: named sets and maps made by nft 1.1.2 or newer carry data that crashes older nft.
        return (
            f"nft was killed by signal {-done.rc if done.rc < 0 else done.rc - 128}. nft before 1.1.2 crashes if a newer nft,"
            " for example in a container, has made a named set or map. Upgrade nftables on the node"
        )
    lines = (line.strip() for line in done.stderr.splitlines())
    said = "; ".join(line for line in lines if line.strip("^~ ")) or f"exit status {done.rc}, no error message"
    return f"{said}. {nfnetlink.NOT_PERMITTED}" if "Operation not permitted" in said else said
