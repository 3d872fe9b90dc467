# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option ``before``, and the units of this collection that it applies to."""

from __future__ import annotations

import re

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import address_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._kubelet.kubelet_units import EARLIER, STARTERS, others
from ansible_collections.kubenode.datapath.plugins.module_utils._listener import policy_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_unit
from ansible_collections.kubenode.datapath.plugins.module_utils._systemd.boot_unit import BootUnit

CONDITION = table_unit.BootCondition("imds", "eth0", "/usr/bin/python3", "/etc/t.pyz")
MORE = ("my.service", "your.target")
UNITS = [
    table_unit.unit("ip6", "t", "/etc/t", before=MORE),
    table_unit.unit("ip6", "t", "/etc/t", CONDITION, before=MORE),
    policy_unit.unit(75, "/etc/x", "/usr/bin/python3", "/etc/x.pyz", before=MORE),
    address_unit.unit("eth1", ["10.0.1.10/32 dev eth1"], before=MORE),
]
each_unit = pytest.mark.parametrize("unit", UNITS, ids=["table", "table with a condition", "routes", "addresses"])


def named(key: str, unit: BootUnit) -> set[str]:
    """The units after all ``key=`` of a unit."""
    return {word for line in re.findall(rf"^{key}=(.*)$", unit.text, re.MULTILINE) for word in line.split()}


@each_unit
def test_each_unit_comes_before_all_that_starts_kubelet(unit: BootUnit) -> None:
    assert {*STARTERS, *MORE} <= named("Before", unit)


@each_unit
def test_what_a_unit_comes_after_is_refused_in_before(unit: BootUnit) -> None:
    after = {name for name in named("After", unit) if not name.endswith(".device")}
    assert after <= EARLIER
    for name in (*after, "sysinit.target", "basic.target"):
        with pytest.raises(Invalid, match=re.escape("before[0] must be a unit that starts later in the boot than")):
            others([name])


@pytest.mark.parametrize(
    "name",
    ["my-kubelet.service", "k3s-prod.service", "kube@node:1.service", r"a\x2db.service", "kubernetes.target", "a.b_c.service"],
)
def test_names_of_services_and_targets_are_taken(name: str) -> None:
    assert others([name]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        *("", "kubelet", ".service", "my.timer", "a b.service", "a.service\n", "a\nb.service", "%i.service", "kubelet@.service"),
        *("@a.service", "a/b.service", "a;b.service", f"{'a' * 248}.service"),
    ],
)
def test_what_is_no_name_of_a_service_or_target_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match=r"^before\[1\] must be the name of a systemd unit that ends with .service or .target"):
        others(["my.service", name])


@each_unit
def test_a_unit_of_this_collection_is_refused_in_before(unit: BootUnit) -> None:
    with pytest.raises(Invalid, match=r"^before\[0\] must be a unit that starts kubelet, and not one of this collection"):
        others([unit.name])


@pytest.mark.parametrize("given", [None, [], ["kubelet.service"], ["k3s.service", "rke2-agent.service"]])
def test_a_unit_that_is_known_adds_nothing(given: list[str] | None) -> None:
    assert others(given) == ()


def test_the_option_is_a_set() -> None:
    assert others(["b.service", "a.service", "b.service"]) == others(["a.service", "b.service"]) == ("a.service", "b.service")
