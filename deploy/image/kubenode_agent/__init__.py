# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of the DaemonSet: converges the node that it runs on and holds it there, or audits it.

settings, variables   the pod's configuration: environment and ConfigMap
playbook              one run of a profile on this node
child                 an audit of this node
watch                 what changes on this node
api                   requests to the API of Kubernetes
reachability          whether the API answers in the node's network, which confirms a checkpoint
node                  the node's object in Kubernetes: label, taint, condition, events
condition             the condition that follows from an audit
metrics               the metrics for Prometheus
loop                  turns, and the wait between two of them
agent, auditor        a turn that converges the node, or audits it
"""
