# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nft of other Debian releases, to stand in for a lab node's own."""

from __future__ import annotations

import shlex

from lab import images

SUITES = {"bullseye": "0.9.8", "bookworm": "1.0.6", "trixie": "1.1.3"}
"""A release, and the nftables version that it carries."""


def wrapper(suite: str) -> str:
    """The text of a shell script that behaves as the nft of *suite*.

    It starts the other release's program by that release's own loader and libraries. In a chroot, nft
    could not read its input: the node's files, and ``/dev/stdin``, which ``nft -f -`` opens by name.
    """
    root = images.root(suite)
    # /lib is a link to usr/lib from bookworm on; the loader's link in /lib64 is absolute in bullseye.
    loader = next(root.glob("lib/*-linux-gnu*/ld-linux*.so.*"))
    libraries = f"{loader.parent}:{root}/usr/lib/{loader.parent.name}"
    command = shlex.join([str(loader), "--library-path", libraries, f"{root}/usr/sbin/nft"])
    return f'#!/bin/sh\nexec {command} "$@"\n'
