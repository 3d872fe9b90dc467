# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables-nft of other Debian releases, to stand in for a lab node's own."""

from __future__ import annotations

import shlex

from lab import images

SUITES = {"bullseye": "1.8.7", "trixie": "1.8.11"}
"""A release, and the iptables version that it carries. The host's own is another one."""

PROGRAM = "/usr/sbin/xtables-nft-multi"
"""What all names of ebtables-nft lead to."""


def wrapper(suite: str) -> str:
    """The text of a shell script that behaves as the program of *suite* with the name under which it is called.

    A chroot, as the program looks for its extensions at a fixed place; it reads no files of the node.
    """
    root = images.root(suite, ("iptables",))
    return f'#!/bin/sh\nexec chroot {shlex.quote(str(root))} /usr/sbin/"${{0##*/}}" "$@"\n'
