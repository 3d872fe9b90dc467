# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user sees, and the checks of the audit that may explain it, the likeliest first. docs/symptoms.md is made of it."""

from __future__ import annotations

CHECKS_BY_SYMPTOM = {
    "A LoadBalancer times out from pods": (
        "rp-strict-asymmetric",
        "valid-mark-missing",
        "rp-all-overrides",
    ),
    "An IPv6 health probe fails, and the load balancer removes the node": (
        "probe-untranslated",
        "probe-no-way-back",
        "ra-route-expires",
    ),
    "A node port hangs for pods behind another network interface": (
        "reply-by-other-interface",
        "mark-without-rule",
        "mark-rule-late",
        "mark-clobbered",
        "rp-strict-asymmetric",
    ),
    "A MetalLB or kube-vip address answers on one network only": ("service-reply-by-default",),
    "The load balancer's probes fail on nodes where kube-proxy uses ipvs": ("lb-address-local",),
    "All nodes are unhealthy in the shared probe mode, port 10256": ("probe-port-closed",),
    "A new pod is unreachable, and its address was another pod's": (
        "ebtables-stale",
        "neighbor-moved",
        "rules-of-one-source",
    ),
    "A pod reaches nothing outside of its node": (
        "pod-rule-missing",
        "rule-to-empty-table",
        "gateway-mac-changed",
        "forwarding-off",
    ),
    "Pods lose their network when an interface (ENI) is attached": (
        "networkd-removes-foreign",
        "daemon-competes",
        "default-by-secondary",
        "rp-secondary-with-cilium",
    ),
    "Pods lose their network when systemd-networkd restarts or is upgraded": (
        "networkd-removes-foreign",
        "base-rule-missing",
    ),
    "It works until the node reboots": (
        "rp-strict-at-boot",
        "forwarding-off-at-boot",
        "own-table-lost",
        "flush-coming",
    ),
    "Clients outside of the VPC get no answer from a pod's interface or an NLB with IP targets": (
        "pod-rule-within-network",
        "reply-by-other-interface",
    ),
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts': (
        "rp-strict-asymmetric",
        "valid-mark-missing",
        "tunnel-strict",
        "rp-all-with-cilium",
        "rp-all-overrides",
    ),
    "Packets are dropped under Cilium though its interfaces have rp_filter 0": (
        "rp-all-with-cilium",
        "rp-secondary-with-cilium",
    ),
    "Pods of one node do not reach each other, azure-vnet transparent-tunnel": ("tunnel-strict",),
    "A pod sees a node's address in place of the pod that calls it": ("pod-source-translated",),
    "IPv6 fails some time after boot": ("ra-route-expires",),
    "Nothing is forwarded after a hardening or a CIS benchmark": (
        "forwarding-off",
        "forwarding-off-at-boot",
        "rp-strict-at-boot",
        "rp-all-overrides",
    ),
    "Services fail after the firewall was reloaded or restarted": (
        "flush-coming",
        "own-table-lost",
        "both-backends",
    ),
    "IPv6 requests time out beside firewalld": ("firewalld-strict-ipv6",),
    "Rules of iptables are listed, and have no effect": ("both-backends",),
    "kubectl logs and kubectl exec time out for one node": ("kubelet-port-taken",),
    'New connections fail under load, "nf_conntrack, table full"': ("conntrack-near-full",),
    "Latency grows with the number of pods on a node": ("rules-by-the-hundred",),
    "A profile was applied, and the trouble came back": (
        "own-drift",
        "own-table-lost",
    ),
    "The table for probes is there, and changes nothing under Cilium": ("probe-table-beside-cilium",),
}
