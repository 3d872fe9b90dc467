# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions in which several tests run a node: from another root, or just after its boot."""

from __future__ import annotations

# A shell script that makes /mnt a root with all of the node's files, which is not the root of process 1.
ANOTHER_ROOT = """
mount -t tmpfs tmpfs /mnt
for entry in /*; do
  if [ -L $entry ]; then cp -P $entry /mnt
  elif [ -d $entry ] && [ $entry != /mnt ]; then mkdir /mnt$entry && mount --rbind $entry /mnt$entry
  fi
done
"""

# For a program that runs through it, process 1 seems to have started just now, so files that a boot reads are older.
BOOTED_NOW = ("unshare", "--pid", "--fork", "--mount-proc")
