# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check says the same of a running node, of a bundle and of a paste. The rows are in tests/check_rows.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_rows import ROWS, Outputs, Row

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check, check
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS, Node
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import NOTE, Remedy, Suspicion, Unobserved
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import settings, snapshot_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import snapshot_form

KEY = "net.ipv4.tcp_tw_reuse"  # in no snapshot, unless a check names it


@check("toy", NOTE, "Ports.", "The setting.", "Set it to 1.", "https://docs.kernel.org/", "Toys break", settings=(KEY,))
def TOY(node: Node) -> Iterator[Suspicion]:
    if node.sysctl(KEY) == 0:
        yield Suspicion(KEY, f"{KEY} is 0.", (f"{KEY} = 0",), Remedy(operator=f"Set {KEY} to 1"))


CHECKS = {check.id: check for check in (*catalogue.CHECKS, TOY)}
CASES = {**ROWS, "toy": Row({"sysctl -a": f"{KEY} = 0\n"}, {"sysctl -a": f"{KEY} = 1\n"}, KEY, [f"{KEY} = 0"])}
OTHER = {"ip rule": "0:\tfrom all lookup local\n"}  # without which a paste or a bundle may be none
BUNDLE = {  # where Rancher's collector has an output
    "sysctl -a": "systeminfo/sysctla",
    "ip -d addr": "networking/ipaddrshow",
    "ip neigh": "networking/ipneighbour",
    "ip route show table all": "networking/iproute",
    "ip -6 route show table all": "networking/ipv6route",
    "ip rule": "networking/iprule",
    "iptables-save": "networking/iptablessave",
    "nft list ruleset": "networking/nft_ruleset",
}


def paste(outputs: Outputs, _check: Check, _folder: Path) -> Any:
    return pastes.read({**outputs}).snapshot


def bundle(outputs: Outputs, _check: Check, folder: Path) -> Any:
    for command, text in {**OTHER, **outputs}.items():
        path = folder / BUNDLE[command]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return pastes_backend.read(str(folder)).snapshot


def live(outputs: Outputs, looked: Check, folder: Path) -> Any:
    """Return what a running node shows: it has read all, and of the settings of the node those that it knows or a check names."""
    snapshot = paste(outputs, looked, folder)
    of_node = {
        key: value for key, value in snapshot["settings"]["node"].items() if settings.decides(key) or key in looked.settings
    }
    empty: dict[str, Any] = {name: dict.fromkeys(parts, {}) for name, parts in snapshot_form.PARTS.items()}
    empty |= {"firewalls": {}, "boot": {}}
    whole = {name: snapshot.get(name) or empty.get(name, []) for name in (*SUBSETS, "nftables_text")}
    return {**whole, "settings": {**snapshot["settings"], "node": of_node}}


def findings(snapshot: Any, looked: Check) -> list[dict[str, Any]]:
    audit = audit_backend.Audit(snapshot, [looked], does_prove=False)
    result = audit_backend.result(audit, never)
    assert result["passed"] == ([] if result["findings"] else [looked.id])
    return list(result["findings"])


def never(*_arguments: Any, **_options: Any) -> Any:
    raise AssertionError("a check starts no program")


@pytest.mark.parametrize("evidence", [live, paste, bundle])
@pytest.mark.parametrize("name", CASES)
def test_a_check_says_the_same_of_each_kind_of_evidence(evidence: Any, name: str, tmp_path: Path) -> None:
    row, looked = CASES[name], CHECKS[name]
    (finding,) = findings(evidence(row.outputs, looked, tmp_path), looked)
    assert (finding["state"], finding["subject"], finding["evidence"]) == ("present", row.subject, row.evidence), finding
    assert findings(evidence({**row.outputs, **row.mended}, looked, tmp_path), looked) == []


@pytest.mark.parametrize(("name", "command"), [(name, command) for name, row in CASES.items() for command in row.outputs])
def test_a_trouble_is_not_absent_where_an_output_is_missing(name: str, command: str, tmp_path: Path) -> None:
    row, looked = CASES[name], CHECKS[name]
    outputs = {other: text for other, text in row.outputs.items() if other != command}
    for finding in findings(paste({**OTHER, **outputs}, looked, tmp_path), looked) or [{}]:
        assert finding.get("state") == "present" or finding.get("ask"), command


def test_a_setting_that_a_check_names_is_read_from_the_kernel() -> None:
    snapshot = snapshot_backend.read(never, ["settings"], TOY.settings)
    assert KEY in snapshot["settings"]["node"]
    (finding,) = findings({"settings": {"node": {}}}, TOY)
    assert (finding["state"], finding["ask"]) == ("cannot_tell", f"sysctl {KEY}")


def test_the_tap_of_a_virtual_machine_hides_no_pod() -> None:
    links = [
        {"name": "b0", "kind": "bridge"},
        {"name": "t0", "kind": "tun", "master": "b0"},
        {"name": "veth1", "kind": "veth", "peer": {"namespace": "p", "addresses": ["10.244.1.5"]}},
    ]
    routes = [{"family": "ipv4", "to": "10.9.0.0/24", "dev": "b0", "table": "254"}]
    whole: dict[str, Any] = {name: [] for name in (*SUBSETS, "nftables_text")}
    assert Node({**whole, "links": links, "routes": routes}, Context()).pods == {"10.244.1.5": "veth1"}


@pytest.mark.parametrize(("source", "is_suspected"), [("10.0.1.21", True), ("10.0.0.10", False)])
def test_a_strict_filter_beside_tables_that_no_output_has_is_suspected(source: str, is_suspected: bool) -> None:
    """A pod has a table of its own, as has the node's address with cloud-init."""
    dump = {
        "ip -d addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n link/ether 02:00:00:00:00:04\n inet 10.0.0.10/24 scope global eth0\n",
        "ip rule": f"0: from all lookup local\n1536: from {source} lookup 2\n32766: from all lookup main\n",
        "ip route": "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.10\n",
        "sysctl -a": "net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth0.rp_filter = 1\n",
    }
    with pytest.raises(Unobserved) as error:
        list(CHECKS["rp-strict-asymmetric"].look(Node(pastes.read(dump).snapshot, Context())))
    assert error.value.ask == "ip route show table 2"
    evidence = ("net.ipv4.conf.eth0.rp_filter = 1", f"1536: from {source} lookup 2")
    assert error.value.evidence == (evidence if is_suspected else ())
