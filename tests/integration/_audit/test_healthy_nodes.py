# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_audit finds nothing on healthy nodes, but for what is named here with its reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sampling import sampled

from .auditing import concluded
from .healthy_nodes import CIS, IMAGES, NODES, SYSTEMD, Image

# By node and image, the findings that are right.
FINDINGS: dict[tuple[str, str], set[str]] = {
    # The image's filter of all makes eth0 strict, although Terway has turned it off: packets are lost (image-builder#536).
    ("Terway", "CIS"): {"rp-strict-asymmetric", "rp-all-overrides"},
    # netd sets the filter of eth0 when it starts, which may be after the first requests.
    ("GKE", "CIS"): {"rp-strict-at-boot"},
    # The kernel filters what comes in by a link without an address, even loosely, if the way back is by another link: a note.
    **{("EKS with security groups for pods", image.name): {"path-lost"} for image in IMAGES[1:]},
}
# By node, the findings that are right on each image.
# Google's file of sysctl.d turns forwarding off until a program of the node turns it on again, and whenever sysctl --system runs.
# amazon-vpc-cni-k8s loses its rules on Ubuntu when systemd-networkd configures a link again (aws#3309).
# Its kube-proxy runs in the mode ipvs, which Kubernetes 1.43 no more has (enhancements#6120).
# netplan's rule for the second address of the node keeps pods from it; no port of kube-router's bridge sends frames back; rules
# of an administrator keep pods from the outside or from each other: all of these are notes.
ALWAYS = {
    "GKE": {"forwarding-off-at-boot"},
    "EKS on Ubuntu": {"networkd-removes-foreign"},
    "bare metal with MetalLB": {"path-lost", "proxy-mode-ipvs"},
    "kube-router": {"path-lost"},
    "restricted pods and containers": {"path-lost"},
    "leftovers of others": {"path-lost", "rule-to-empty-table"},
}
# By node, the checks that cannot tell: BPF programs of Cilium, which no twin has, decide, or the network beyond the node, by
# which packets go from a pod of the node to another.
OPEN = {
    "Cilium with ENIs": {"reply-by-other-interface", "path-lost"},
    "AKS with Cilium": {"probe-untranslated", "path-lost"},
    "EKS with security groups for pods": {"path-lost"},
    "GKE": {"path-lost"},
    "bare metal with MetalLB": {"path-lost"},
}


def is_in_sample(case: tuple[str, Image]) -> bool:
    """Strict filters, and one more image of each node; the images differ in filters alone."""
    return case[1] == CIS or case[1] == IMAGES[[*NODES].index(case[0]) % len(IMAGES)]


@pytest.mark.parametrize(("name", "image"), sampled(itertools.product(NODES, IMAGES), is_in_sample))
def test_a_healthy_node_has_no_finding(name: str, image: Image) -> None:
    result = concluded(NODES[name](image).done())
    by_state: dict[str, dict[str, Any]] = {"present": {}, "cannot_tell": {}}
    lost = [finding for finding in result["findings"] if (finding["id"], finding["state"]) == ("path-lost", "present")]
    assert [finding for finding in lost if finding["severity"] != "note"] == []
    for finding in result["findings"]:
        by_state[finding["state"]][finding["id"]] = finding
    assert {*by_state["present"]} == FINDINGS.get((name, image.name), set()) | ALWAYS.get(name, set()), by_state
    assert {*by_state["cannot_tell"]} == OPEN.get(name, set()), by_state
    assert all(finding["ask"] for finding in by_state["cannot_tell"].values())


def test_a_pod_of_a_bridge_has_moved_if_its_permanent_neighbour_has_another_mac() -> None:
    snapshot = NODES["azure-vnet in bridge mode"](SYSTEMD).done()
    pod = next(entry for entry in snapshot["neighbors"] if entry["state"] == "PERMANENT")
    pod["mac"] = "02:00:00:00:00:99"
    # A path that is lost makes an error of the note whose remedy ends that.
    for does_prove, severity in ((False, "note"), (True, "error")):
        findings = concluded(snapshot, does_prove=does_prove)["findings"]
        present = [
            (finding["id"], finding["subject"], finding["severity"], bool(finding["packet"]))
            for finding in findings
            if finding["state"] == "present"
        ]
        assert present == [("neighbor-moved", pod["address"], severity, does_prove)]


@pytest.mark.parametrize("name", NODES)
def test_a_healthy_node_has_no_finding_if_no_packet_is_tried(name: str) -> None:
    result = concluded(NODES[name](SYSTEMD).done(), does_prove=False)
    present = {finding["id"] for finding in result["findings"] if finding["state"] == "present"}
    assert present == ALWAYS.get(name, set()) - {"path-lost", "forwarding-off-at-boot"}  # which packets show
    assert result["profile"]["name"] is None
    assert all(finding["ask"] for finding in result["findings"] if finding["state"] == "cannot_tell")
