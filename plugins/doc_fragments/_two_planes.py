# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This doc fragment is private to the collection: it may change at any time.

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description:
      - With V(present), the node is brought to the state that the options describe.
      - With V(absent), the objects that earlier runs added are removed, and those that they replaced are restored.
    type: str
    choices: [present, absent]
    default: present
  immediate:
    description:
      - Whether the running kernel is managed.
      - Refused in a root that is not process 1's, as in a chroot or an image build, because the kernel is another system's there.
      - At least one of O(immediate) and O(permanent) must be true.
    type: bool
    default: true
  permanent:
    description:
      - Whether the files for the next boot are managed, which are the data, the unit that loads the data, and the link that
        enables the unit.
      - Works offline.
    type: bool
    default: true
"""
