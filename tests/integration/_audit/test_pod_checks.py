# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of pods by which a real pod reaches nothing."""

from __future__ import annotations

from typing import Any

from lab.eni import BACKEND
from lab.node import POD_PORT, NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .test_mark_checks import apply
from .troubles import OFF, POD


def findings(node: NamespaceNode) -> list[dict[str, Any]]:
    return list(Steps(node, "datapath_audit", {"checks": ["gateway-mac-changed"]}).run()["findings"])


def test_a_pod_sends_to_the_address_that_its_link_had_before() -> None:
    with scenes.shared_enis(OFF) as (lab, node):

        def arrives() -> bool:
            return lab.fetch_from("pod1", BACKEND, POD_PORT, 0.3) is not None

        assert arrives() and findings(node) == []
        node.run(["ip", "link", "set", "dev", "veth-pod1", "address", "02:00:00:00:00:88"])
        assert not arrives()
        (finding,) = findings(node)
        assert (finding["subject"], finding["severity"], finding["proof"]) == (POD, "error", "twin")
        assert finding["evidence"][-1].startswith("veth-pod1: rx_otherhost_dropped ")
        apply(node, finding["remedy"])
        assert arrives() and findings(node) == []


def test_a_namespace_whose_neighbours_were_not_read_may_have_the_trouble() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        snapshot = Steps(node, "datapath_info").run()["snapshot"]
        entry = {"subset": "pod_neighbors", "object": "process 7", "reason": "The neighbours could not be read."}
        options = {"checks": ["gateway-mac-changed"], "snapshot": {**snapshot, "unread": [entry]}}
        (finding,) = Steps(node, "datapath_audit", options).run()["findings"]
        assert (finding["state"], finding["what"]) == ("cannot_tell", "The neighbours could not be read.")
        assert finding["ask"].startswith("ip -all netns exec ip neigh; ip -all netns exec ip -6 neigh")


NESTED = """
ip netns add pod && ip netns add docker && ip netns add inner
ip link add veth1 index 107 type veth peer name eth0 index 3 netns pod
ip -n docker link add in0 index 107 type veth peer name eth0 index 3 netns inner
ip link set veth1 up && ip -n pod link set eth0 up && ip -n docker link set in0 up && ip -n inner link set eth0 up
ip -n inner address add 172.18.0.2/24 dev eth0
ip -n inner neigh add 172.18.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
"""


def test_a_namespace_inside_of_a_pod_is_not_taken_for_a_pod_by_the_indexes_of_its_links() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        node.run(["sh", "-ec", NESTED])
        try:
            assert findings(node) == []
            links = Steps(node, "datapath_info", {"gather": ["links"]}).run()["snapshot"]["links"]
            (peer,) = (link["peer"] for link in links if link["name"] == "veth1")
            assert peer["namespace"] == "namespace pod"
        finally:
            node.run(["sh", "-c", "for name in pod docker inner; do ip netns delete $name; done"])
