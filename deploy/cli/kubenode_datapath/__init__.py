# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command kubenode-datapath: the trace and the audit of this collection without Ansible.

It imports the rooms of plugins/module_utils, and packing.py packs those that it reaches beside it.
"""
