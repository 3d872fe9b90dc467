# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make quick` runs the tests of what has changed."""

from __future__ import annotations

from pathlib import Path

import house
import pytest
import selection

ON_KERNEL = "tests/integration/"
CASES = {
    "plugins/module_utils/_routing/rule.py": {"_routing/test_policy_routes.py", "_routing/test_readers_agree.py"},
    "plugins/modules/rp_filter.py": {"_rp_filter/test_rp_filter.py"},
    "plugins/module_utils/_parts/rp_filter.py": {"_rp_filter/test_rp_filter.py"},
    "plugins/module_utils/_profiles/aks_dual_stack.py": {
        "_profiles/test_ownership.py",
        "_profiles/test_profile.py",
        "roles/test_role_aks_dual_stack.py",
    },
    "roles/aks_dual_stack/tasks/main.yml": {"roles/test_role_aks_dual_stack.py"},
    "molecule/aks_dual_stack/verify.yml": {"roles/test_role_aks_dual_stack.py"},
    "playbooks/common/profile.yml": {"roles/test_fleet.py"},
    "plugins/plugin_utils/_rollout.py": {"roles/test_fleet.py"},
    "tests/integration/_kubelet/test_kubelet_starters.py": {"_kubelet/test_kubelet_starters.py"},
    "docs/trace.md": set(),
}


@pytest.mark.parametrize(("path", "expected"), CASES.items())
def test_the_tests_on_a_kernel_are_those_of_what_has_changed(path: str, expected: set[str]) -> None:
    assert set(selection.integration_tests({Path(path)})) == {ON_KERNEL + name for name in expected}


def test_a_change_of_a_service_touches_all_rooms() -> None:
    tests = selection.integration_tests({Path("plugins/module_utils/_core/converge.py")})
    assert {Path(test).parent.name for test in tests} >= {"_routing", "_nftables", "_trace"}
    assert not {"lab", "roles"} & {Path(test).parent.name for test in tests}


def test_a_change_of_the_lab_touches_its_tests() -> None:
    tests = selection.integration_tests({Path("tests/lab/node.py")})
    assert tests and all(test.startswith(f"{ON_KERNEL}lab/") for test in tests)


def test_a_unit_test_is_run_for_a_file_that_it_imports_at_any_remove() -> None:
    (service,) = (path for path in house.files("_core") if path.name == "errors.py")
    tests = selection.unit_tests({service.relative_to(selection.ROOT)})
    assert {"tests/unit/_routing/test_rule_order.py", "tests/unit/test_house.py"} <= set(tests)
    assert "tests/unit/_routing/test_rule_order.py" not in selection.unit_tests({Path("docs/trace.md")})


def test_tests_on_a_kernel_have_the_time_that_is_left() -> None:
    assert selection.limits(["a"], spent=140) == selection.limits(["a", "b"], spent=140) == (400, 400)
    assert selection.limits(["a"] * 8, spent=140) == (100, 400)
    assert selection.limits(["a"] * 400, spent=500) == (5, 40)
    assert selection.limits(["a"], spent=1000) == (5, 5)
