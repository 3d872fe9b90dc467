# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first arguments and the exit statuses of boot programs. They are apart from the units, whose code no boot needs."""

from __future__ import annotations

WATCH = "watch"  # stay, and follow the node's changes
REHEARSE = "rehearse"  # try what is needed, and change nothing
LACKS_LIBRARY = 76  # of a rehearsal: a library that the program needs is missing
NO = 77  # of a condition, on a node without IPv6; no shell and no Python exits with it by itself
