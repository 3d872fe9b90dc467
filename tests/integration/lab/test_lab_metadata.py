# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata service of the lab answers as the clouds do, and fails in all the ways that a client must distinguish."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from lab import namespace
from lab.machine import Machine
from lab.metadata import ERROR_PAGE, Behaviour, MetadataServer
from lab.metadata_replies import DUAL_STACK, IPV4_ONLY, NO_IPV6_KEY, TOKEN, Alibaba, Aws, Azure, Nic

AZURE = "http://169.254.169.254/metadata/instance/network/interface?api-version=2021-02-01"
ALIBABA = "http://100.100.100.200/latest/meta-data/network/interfaces/macs/"
AWS = "http://169.254.169.254/latest/meta-data/network/interfaces/macs/"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with namespace.machine("metadata") as machine:
        yield machine


def ask(machine: Machine, url: str, *options: str) -> tuple[int, str]:
    """curl's exit status and the body; an HTTP error is 22 without a body."""
    done = machine.run(["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", *options, url], check=False)
    return done.returncode, done.stdout


def ask_azure(machine: Machine, *options: str) -> tuple[int, str]:
    return ask(machine, AZURE, "--header", "Metadata: true", *options)


def test_azure_tells_each_interface(machine: Machine) -> None:
    with MetadataServer(machine, nics=(DUAL_STACK, Nic(mac="00:0d:3a:00:00:02", ipv6=None))) as service:
        status, body = ask_azure(machine)
        first, second = json.loads(body)
        assert status == 0
        assert first["ipv6"] == {"ipAddress": [{"privateIpAddress": "fd00:10::4"}]}
        assert first["ipv4"]["subnet"] == [{"address": "10.0.0.0", "prefix": "24"}]
        assert second["macAddress"] == "000D3A000002"
        assert "ipv6" not in second
        service.nics = (IPV4_ONLY,)
        assert json.loads(ask_azure(machine)[1])[0]["ipv6"] == {"ipAddress": []}
        service.nics = (NO_IPV6_KEY,)
        assert "ipv6" not in json.loads(ask_azure(machine)[1])[0]
        assert [request.headers["metadata"] for request in service.requests] == ["true"] * 3


@pytest.mark.parametrize("options", [(), ("--header", "Metadata: true", "--header", "X-Forwarded-For: 10.0.0.1")])
def test_azure_refuses_what_may_be_forged(machine: Machine, options: tuple[str, ...]) -> None:
    with MetadataServer(machine, Azure()):
        assert ask(machine, AZURE, *options) == (22, "")


def test_aws_answers_to_its_token_alone(machine: Machine) -> None:
    with MetadataServer(machine, Aws()):
        assert ask(machine, AWS) == (22, "")
        asked = ("--request", "PUT", "--header", "X-aws-ec2-metadata-token-ttl-seconds: 60")
        assert ask(machine, "http://169.254.169.254/latest/api/token", "--request", "PUT") == (22, "")
        token = ask(machine, "http://169.254.169.254/latest/api/token", *asked)
        assert token == (0, TOKEN)
        with_token = ("--header", f"X-aws-ec2-metadata-token: {TOKEN}")
        assert ask(machine, AWS, *with_token) == (0, f"{DUAL_STACK.mac}/")
        assert ask(machine, f"{AWS}{DUAL_STACK.mac}/ipv6s", *with_token) == (0, "fd00:10::4")
        assert ask(machine, f"{AWS}{DUAL_STACK.mac}/nothing", *with_token) == (22, "")


def test_alibaba_wants_a_token_when_hardened(machine: Machine) -> None:
    with MetadataServer(machine, Alibaba(), (Nic(ipv4=("10.0.0.4", "10.0.0.5"), ipv6=("fd00:10::4", "fd00:10::5")),)):
        assert ask(machine, f"{ALIBABA}{DUAL_STACK.mac}/private-ipv4s") == (0, '["10.0.0.4", "10.0.0.5"]')
        assert ask(machine, f"{ALIBABA}{DUAL_STACK.mac}/ipv6s") == (0, "[fd00:10::4,fd00:10::5]")
    with MetadataServer(machine, Alibaba(needs_token=True), (IPV4_ONLY,)):
        assert ask(machine, ALIBABA) == (22, "")
        with_token = ("--header", f"X-aliyun-ecs-metadata-token: {TOKEN}")
        assert ask(machine, f"{ALIBABA}{IPV4_ONLY.mac}/ipv6s", *with_token) == (22, "")
        assert ask(machine, f"{ALIBABA}{IPV4_ONLY.mac}/netmask", *with_token) == (0, "255.255.255.0")


def test_each_fault_is_told_from_the_others(machine: Machine) -> None:
    with MetadataServer(machine) as service:
        for status in (404, 429, 500):
            service.change(Behaviour(fault="status", status=status))
            code = machine.run(["curl", "-s", "--write-out", "\n%{http_code}", "--header", "Metadata: true", AZURE]).stdout
            assert code == f"{ERROR_PAGE}\n{status}"
        service.change(Behaviour(fault="garbage"))
        status, body = ask_azure(machine)
        assert status == 0 and not body.startswith("[")
        service.change(Behaviour(fault="truncated"))
        assert ask_azure(machine)[0] == 18  # curl: partial file
        service.change(Behaviour(fault="silence"))
        assert ask_azure(machine, "--max-time", "0.3")[0] == 28  # curl: timed out
        service.change(Behaviour(fault="refused"))
        assert ask_azure(machine)[0] == 7  # curl: could not connect
        service.change(Behaviour(delay=0.3))
        assert ask_azure(machine, "--max-time", "0.1")[0] == 28
        assert ask_azure(machine)[0] == 0


def test_a_service_can_come_up_later(machine: Machine) -> None:
    started = time.monotonic()
    with MetadataServer(machine) as service:
        service.change(Behaviour(up_after=0.4))
        assert ask_azure(machine)[0] == 7
        while ask_azure(machine)[0] != 0:
            assert time.monotonic() - started < 5
            time.sleep(0.05)
        assert time.monotonic() - started > 0.4
    assert ask_azure(machine)[0] == 7
