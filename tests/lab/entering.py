# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enters a machine's namespaces for a command, with a guard that refuses the host's.

Stands alone (standard library only): the Ansible connection plugin uses it as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

NAMESPACE_NODE = ("net", "mount")
NETWORK_ONLY = ("net",)
ALL = ("all",)

ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
"""What a command in a machine finds; nothing of the caller's environment leaks in."""

ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")
"""In front of a command: it is told to end when its starter has ended, however that ended (prctl(2), PR_SET_PDEATHSIG). What
must not outlive the lab by the time that it takes to be built is started so."""


class LabError(Exception):
    """The lab cannot do what a test or a user asked for; the message says why."""


def network_namespace(pid: int) -> str:
    """The network namespace of a process, e.g. ``net:[4026532301]``."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError as error:
        raise LabError(f"the namespaces of process {pid} cannot be read: {error.strerror}; has the machine ended?") from error


def refuse_host(pid: int) -> None:
    """Raise LabError where process ``pid`` lives in the network namespace of the caller or of process 1.

    A process that was forked but has not yet unshared is still in the host's namespaces, and a reused pid may belong to any
    process: commands for a node would then change the host.
    """
    target = network_namespace(pid)
    for other, namespace in _forbidden().items():
        if target == namespace:
            raise LabError(f"refused to enter process {pid}: its network namespace {target} is that of {other}")


def _forbidden() -> dict[str, str]:
    """The processes whose network must not be entered.

    In a container, process 1 may have more capabilities than this process. The kernel then shows none of its namespaces
    (ptrace(2), access mode checks) and permits to enter none.
    """
    forbidden = {"the caller": network_namespace(os.getpid())}
    with contextlib.suppress(PermissionError):
        forbidden["process 1"] = os.readlink("/proc/1/ns/net")
    return forbidden


def command(pid: int, namespaces: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that runs ``argv`` in the namespaces of process ``pid``.

    ``namespaces`` are nsenter's long options without dashes: NAMESPACE_NODE, NETWORK_ONLY, or ALL for a container.
    """
    refuse_host(pid)
    enter = [f"--{namespace}" for namespace in namespaces]
    return ["/usr/bin/nsenter", "--target", str(pid), *enter, "--", *argv]
