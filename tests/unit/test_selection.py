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
    near, _further = selection.integration_tests({Path(path)})
    assert set(near) == {ON_KERNEL + name for name in expected}


@pytest.mark.parametrize(
    ("path", "further", "not_further"),
    [
        ("_core/converge.py", {"_routing/test_policy_routes.py", "_rp_filter/test_rp_filter.py"}, {"lab/test_proxy.py"}),
        ("_twin/worlds.py", {"_audit/test_pod_checks.py", "_trace/test_datapath_trace.py"}, {"_rp_filter/test_rp_filter.py"}),
    ],
)
def test_a_change_touches_the_tests_that_run_a_module_with_it(path: str, further: set[str], not_further: set[str]) -> None:
    _near, tests = selection.integration_tests({Path("plugins/module_utils", path)})
    assert {ON_KERNEL + name for name in further} <= {*tests} and not {ON_KERNEL + name for name in not_further} & {*tests}


def test_a_change_of_the_lab_touches_its_tests() -> None:
    tests, _further = selection.integration_tests({Path("tests/lab/node.py")})
    assert tests and all(test.startswith(f"{ON_KERNEL}lab/") for test in tests)


def test_a_unit_test_is_run_for_a_file_that_it_imports_at_any_remove() -> None:
    (service,) = (path for path in house.files("_core") if path.name == "errors.py")
    tests = selection.unit_tests({service.relative_to(selection.ROOT)})
    assert {"tests/unit/_routing/test_rule_order.py", "tests/unit/test_house.py"} <= set(tests)
    assert "tests/unit/_routing/test_rule_order.py" not in selection.unit_tests({Path("docs/trace.md")})


def test_tests_on_a_kernel_have_the_time_that_is_left() -> None:
    assert selection.share(["a"], 400) == selection.share(["a", "b"], 400) == 400
    assert selection.share(["a"] * 8, 400) == 100
    assert selection.share(["a"] * 400, 40) == 5


def test_the_budget_is_a_number_of_seconds() -> None:
    assert (selection.budget(""), selection.budget("120")) == (selection.SECONDS, 120)
    with pytest.raises(selection.Unusable, match="BUDGET=2m is no number of seconds"):
        selection.budget("2m")
