# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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

    # Of a module whose permanent plane has a file for a table.
    TABLE_FILE = r"""
options:
  path:
    description:
      - The file of the permanent plane, an absolute path of letters, digits and C(_.=+@~:,-).
      - With O(state=present) the file must be in or below a folder that is named C(kubenode) or C(kubenode-NAME) and lies in
        C(/etc), C(/opt), C(/srv) or C(/var/lib), or directly in another folder there that the module creates, such as
        C(/etc/acme). The name of such a folder has letters, digits, C(_) and C(-), and is not one of other programs, such as
        C(systemd). From other folders, and from a folder that exists already, another program may load or execute the file.
        Each folder on the way must belong to root and be writable by root only, and the folder must not be a symbolic link.
        Otherwise the run is refused.
      - If only the last folder of the path is missing, the module creates it. O(state=absent) removes a folder that the module
        created if it is empty.
      - The module does not overwrite a file that it did not write for O(table). The run is refused.
      - If a previous run used another path, the file there is removed. O(state=absent) finds the file of O(table) at any path.
    type: path
"""
