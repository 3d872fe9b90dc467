# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata service of the lab answers as the clouds do, and fails in all the ways that a client must distinguish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import namespace
from lab.machine import Machine
from lab.metadata import MetadataServer
from lab.metadata_replies import DUAL_STACK, IPV4_ONLY, TOKEN, Alibaba, Aws, Azure, Nic

AZURE = "http://169.254.169.254/metadata/instance/network/interface?api-version=2021-02-01"
ALIBABA = "http://100.100.100.200/latest/meta-data/network/interfaces/macs/"
AWS = "http://169.254.169.254/latest/meta-data/network/interfaces/macs/"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with namespace.machine("metadata") as machine:
        yield machine


def ask(machine: Machine, url: str, *options: str) -> tuple[int, str]:
    """curl's exit status and the body; an HTTP error is 22 without a body."""
    completed = machine.run(["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", *options, url], check=False)
    return completed.returncode, completed.stdout


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
