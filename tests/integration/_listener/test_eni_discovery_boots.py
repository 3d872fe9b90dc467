# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""policy_routes on a node that discovers its ENIs itself: at boots, and when network interfaces come and go."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab import Eni, EniLab
from lab.eni import PRIMARY, EniSystemdNode
from lab.metadata import WELL, Behaviour, MetadataServer
from lab.metadata_replies import Aws, Nic
from lab.waiting import until

ENIS: dict[str, Any] = {"layout": "aws_vpc_cni", "cloud": "aws"}
FIRST, SECOND = Eni("eth1", has_address=True), Eni("eth2", has_address=True)
UNIT = "kubenode-policy-routes-75.service"
PATH, RECORD = "/etc/kubenode/policy-routes-75.json", "/run/kubenode/policy-routes-75.json"
AT_KUBELET = "/var/log/at-kubelet"
LOOK = f"[Service]\nExecStartPre=/bin/sh -c '{{ ip rule; ip route show table 2 || true; }} > {AT_KUBELET}'\n"
HOLD = 20.0  # seconds that kubelet waits for the metadata at most


def of(eni: Eni) -> set[str]:
    """The rules and routes of an ENI."""
    table = eni.number + 1
    return {
        f"32765: from {eni.address} lookup {table} proto 75",
        f"{eni.gateway} dev {eni.name} table {table} proto 75 scope link",
        f"default via {eni.gateway} dev {eni.name} table {table} proto 75",
    }


MARKED = "1024: from all fwmark 0x80/0x80 lookup main proto 75"


class Site:
    """A node of AWS with an ENI, and the metadata service."""

    def __init__(self, lab: EniLab, service: MetadataServer) -> None:
        self.lab = lab
        self.service = service
        self.node: EniSystemdNode = lab.node("node1")

    def describe(self, *enis: Eni) -> None:
        """Let the metadata name these ENIs."""
        mac = self.node.place.mac
        self.service.nics = tuple(
            Nic(mac(eni.number), (eni.address,), (), f"10.0.{eni.number}.0/24", device_number=eni.number)
            for eni in (PRIMARY, *enis)
        )

    def plug(self, eni: Eni) -> None:
        """Attach an ENI as a cloud does, and configure it as a CNI or a network daemon does."""
        self.lab.plug(eni.name)
        self.node.ip([f"link set {eni.name} up", f"address add {eni.address}/24 dev {eni.name} noprefixroute"])

    def run(self, check: bool = False, **options: Any) -> dict[str, Any]:
        result = self.node.module("policy_routes", options, check=check)
        assert not result["failed"], result.get("msg", result)
        return result

    def is_as_a_run_leaves_it(self) -> None:
        found = self.run(enis=ENIS)
        assert not found["changed"], f"{found} {self.journal()}"

    def ours(self) -> set[str]:
        said = "".join(self.node.run_from_host(["ip", *what]) for what in (["rule"], ["route", "show", "table", "all"]))
        return {" ".join(line.split()) for line in said.splitlines() if re.search(r"\bproto 75\b", line)}

    def wait_for(self, *enis: Eni) -> None:
        """Until the node has the rules and routes of these ENIs, and no others."""
        until("the rules and routes of these ENIs", self.ours, self, expected={MARKED}.union(*map(of, enis)))

    def last_lines(self) -> str:
        return f"the journal of the listener:\n{self.journal()}"

    def asked(self) -> int:
        """The number of queries to the metadata service: each begins with a request for a token."""
        return sum(request.method == "PUT" for request in list(self.service.requests))

    def journal(self) -> str:
        return self.node.run(["journalctl", "-b", "-o", "cat", "-u", UNIT]).stdout

    def misses(self) -> str:
        """The last line of the journal about missing ENIs."""
        said = re.findall("^Missing: (.*)", self.journal(), re.MULTILINE)
        return said[-1] if said else "nothing any more"

    def boot(self) -> str:
        """Reboots the node. Returns the state that kubelet found at its start."""
        self.node.run(["rm", "-f", AT_KUBELET])
        self.node.reboot()
        return self.node.read(AT_KUBELET)


@pytest.fixture(scope="module")
def bare() -> Iterator[Site]:
    with (
        EniLab("discovery", [FIRST], cni=False, system="bookworm") as lab,
        MetadataServer(lab.router, Aws()) as service,
    ):
        site = Site(lab, service)
        site.describe(FIRST)
        site.node.place_kubelet_stand_in()
        site.node.write("/etc/systemd/system/kubelet.service.d/look.conf", LOOK)
        yield site


@pytest.fixture
def image(bare: Site) -> Site:
    """A node with the files that the module gives to an image."""
    bare.service.change(WELL)
    bare.describe(FIRST)
    if not bare.node.exists(PATH):
        bare.run(immediate=False, enis=ENIS)
    return bare


@pytest.fixture
def booted(image: Site) -> Site:
    if not image.node.exists(RECORD):
        image.boot()
    image.wait_for(FIRST)
    return image


def test_an_image_holds_the_question_and_absent_leaves_nothing(bare: Site) -> None:
    before = bare.node.snapshot()
    foretold = bare.run(check=True, immediate=False, enis=json.dumps(ENIS))
    assert bare.node.snapshot() == before
    result = bare.run(immediate=False, enis=ENIS)
    assert result == foretold and result["changed"]
    (entry,) = result["diff"]
    assert entry["after_header"].startswith(f"permanent: {PATH}")
    assert '{\n"protocol": 75,\n"enis": {"layout": "aws_vpc_cni", "cloud": "aws"}\n}\n' in entry["after"]
    assert not bare.run(immediate=False, enis=ENIS)["changed"]
    assert bare.asked() == 0 and bare.ours() == set()
    assert bare.run(state="absent", immediate=False)["changed"]
    assert bare.node.snapshot() == before


def test_a_boot_finds_what_a_run_finds(bare: Site) -> None:
    assert bare.run(enis=ENIS)["changed"]
    bare.wait_for(FIRST)
    record, kept = bare.node.read(RECORD), bare.node.read(PATH)
    seen = " ".join(bare.boot().split())
    assert "32765: from 10.0.1.10 lookup 2" in seen and "default via 10.0.1.1 dev eth1" in seen
    bare.wait_for(FIRST)
    assert (bare.node.read(RECORD), bare.node.read(PATH)) == (record, kept)
    bare.is_as_a_run_leaves_it()


def test_kubelet_waits_for_metadata_that_is_late(image: Site) -> None:
    image.service.change(Behaviour(up_after=10))
    assert "32765: from 10.0.1.10 lookup 2" in " ".join(image.boot().split())
    image.wait_for(FIRST)


def test_kubelet_does_not_wait_for_metadata_that_never_comes_and_an_answer_heals(image: Site) -> None:
    image.service.change(Behaviour(fault="refused"))
    began = time.monotonic()
    assert "lookup 2" not in image.boot()
    assert time.monotonic() - began > HOLD - 2
    assert "Missing: GET" in image.journal() or "Missing: PUT" in image.journal(), image.journal()
    assert image.ours() == set()
    image.service.change(WELL)
    image.wait_for(FIRST)
    image.is_as_a_run_leaves_it()


def test_an_eni_that_is_plugged_in_gets_its_table_and_loses_it_when_it_goes(booted: Site) -> None:
    enis = booted.node.enis
    booted.node.enis = (FIRST, SECOND)  # restored after this test
    try:
        booted.plug(SECOND)
        until("the listener misses the metadata of eth2", lambda: "Missing: eth2 (" in booted.journal(), booted)
        assert booted.ours() == {MARKED} | of(FIRST)
        booted.describe(FIRST, SECOND)  # the metadata is some seconds late
        booted.wait_for(FIRST, SECOND)
        booted.is_as_a_run_leaves_it()

        booted.service.change(Behaviour(fault="refused"))
        booted.lab.unplug(SECOND.name)
        until("the metadata are refused", lambda: "refused" in booted.journal(), booted)
        assert SECOND.address in booted.node.read(RECORD)  # without an answer the record stays
        booted.describe(FIRST)
        booted.service.change(WELL)
        booted.wait_for(FIRST)
        assert SECOND.address not in booted.node.read(RECORD)
        booted.is_as_a_run_leaves_it()
    finally:
        booted.node.enis = enis


def test_pods_that_come_and_go_send_no_request(booted: Site) -> None:
    until("the listener misses nothing", booted.misses, booted, expected="nothing any more")
    asked = booted.asked()
    for number in range(10):
        booted.node.ip(
            [
                f"link add eni{number} type veth peer name pod{number}",  # one end is a pod's; the link is removed at once
                f"link set eni{number} up",
                f"link delete pod{number}",
            ]
        )
    booted.node.ip(["link add br9 type bridge", "link set br9 up"])
    booted.node.run(["ip", "rule", "flush", "protocol", "75"])  # restoring lost rules needs no query
    booted.wait_for(FIRST)
    time.sleep(2)
    assert booted.asked() == asked, booted.journal()
    pid = booted.node.run(["systemctl", "show", "--property=MainPID", "--value", UNIT]).stdout.strip()
    status = booted.node.read(f"/proc/{pid}/status")
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident and int(resident[1]) < 40 * 1024
    booted.node.ip(["link delete br9"])


def test_absent_leaves_nothing(booted: Site) -> None:
    assert booted.run(state="absent")["changed"] and not booted.run(state="absent")["changed"]
    assert booted.ours() == set() and not booted.node.exists("/run/kubenode") and not booted.node.exists(PATH)
