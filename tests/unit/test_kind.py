# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a cluster of kind, and the variables of ``make kind`` in the workflow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import LabError
from lab.kubernetes import kind

WORKFLOW = (Path(__file__).resolve().parents[2] / ".github/workflows/upstream.yml").read_text()


def test_without_kube_proxy_there_is_no_network_of_kind_either() -> None:
    off = {proxy: kind.configuration("image", proxy)["networking"]["disableDefaultCNI"] for proxy in kind.PROXIES}
    assert off == {"iptables": False, "nftables": False, "ipvs": False, "none": True}


def test_another_mode_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LabError, match="PROXY is userspace; it must be one of iptables, nftables, ipvs, none"):
        kind.configuration("image", "userspace")


def test_the_workflow_runs_each_mode_and_the_newest_image_of_the_tests() -> None:
    (modes,) = re.findall(r"proxy: \[(.*)\]", WORKFLOW)
    assert tuple(modes.split(", ")) == kind.PROXIES
    assert re.findall(r"image: (kindest/\S+)", WORKFLOW)[-1] == kind.NEWEST
