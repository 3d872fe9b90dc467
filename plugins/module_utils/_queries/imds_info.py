# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the network interfaces of the node from its cloud's metadata service."""

from __future__ import annotations

import typing as t

from .._cloud import enis_backend
from .._cloud.metadata import address_of
from .._core.errors import Invalid
from .._core.names import ANY_CLOUD
from .._core.option import Option, Options
from .._module import Module

LONGEST_TIMEOUT = 3600

OPTIONS: Options = {
    "cloud": Option("str", "auto", choices=ANY_CLOUD),
    "endpoint": Option("str"),
    "timeout": Option("float", 5),
    "retries": Option("int", 5),
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        _check(module.params)
        limits = {name: module.params[name] for name in ("timeout", "retries")}
        cloud, interfaces = enis_backend.read(module.params["cloud"], module.params["endpoint"], **limits)
        result.update(
            changed=False,
            cloud=cloud,
            interfaces=interfaces,
            has_ipv6=any(interface["ipv6"] for interface in interfaces if interface["primary"]),
        )


def _check(options: t.Mapping[str, t.Any]) -> None:
    """Check the options. Raises Invalid."""
    endpoint, timeout, retries = options["endpoint"], options["timeout"], options["retries"]
    if endpoint is not None:
        address_of(endpoint)
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise Invalid("timeout", timeout, f"more than 0 and at most {LONGEST_TIMEOUT} seconds")
    if retries < 0:
        raise Invalid("retries", retries, "0 or more")
