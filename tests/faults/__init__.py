# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault harness: every module is killed, and loses its disk and its child processes, at each point of its run.

points.py   the definition of a point, and how a process is stopped there
kinds.py    the kinds of fault
stage.py    runs modules on a node, with a fault; one process for hundreds of runs
cases.py    the modules, their options, and the state of their nodes: data
runner.py   the promises that must hold after each fault, and the table
"""
