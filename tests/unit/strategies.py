# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random rules and routes, as a module's options. Values are few, so that entries collide."""

from __future__ import annotations

import typing as t

from hypothesis import strategies as st

Entry = dict[str, t.Any]

_ADDRESSES = {
    "ipv4": ("10.0.1.5", "10.0.1.0/24", "192.0.2.7", "0.0.0.0/0"),
    "ipv6": ("2001:db8:0:1::5", "2001:db8:0:1::/64", "fd00::/8", "::/0"),
}


def _optional(**options: st.SearchStrategy[t.Any]) -> st.SearchStrategy[Entry]:
    return st.fixed_dictionaries({}, optional=options)


def _rule(family: str) -> st.SearchStrategy[Entry]:
    addresses = st.sampled_from(_ADDRESSES[family])
    selector = _optional(
        **{"from": addresses, "to": addresses, "not": st.booleans()},
        iif=st.sampled_from(("eth0", "eth9")),
        oif=st.sampled_from(("eth0", "lo")),
        fwmark=st.sampled_from(("0x80/0x80", "0/0x80", "1")),
        tos=st.just("0x10"),
        ipproto=st.sampled_from(("tcp", 17)),
        dport=st.sampled_from(("80", "80-90")),
        sport=st.just(1024),
        uidrange=st.sampled_from(("0", "5-9")),
    )
    verdict = st.one_of(
        st.fixed_dictionaries(
            {"table": st.sampled_from(("main", "1003"))}, optional={"suppress_prefixlength": st.integers(0, 1)}
        ),
        st.fixed_dictionaries({"action": st.sampled_from(("blackhole", "unreachable", "prohibit"))}),
        st.fixed_dictionaries({"goto": st.just(32766)}),
    )
    place = st.fixed_dictionaries({"priority": st.sampled_from((700, 701)), "family": st.just(family)})
    return st.builds(lambda *parts: {key: value for part in parts for key, value in part.items()}, place, selector, verdict)


def _route(family: str) -> st.SearchStrategy[Entry]:
    gateway = st.sampled_from({"ipv4": ("192.0.2.1", "192.0.2.2"), "ipv6": ("fe80::1", "fe80::2")}[family])
    prefixes = {"ipv4": ("default", "10.8.0.0/16", "10.9.0.1"), "ipv6": ("default", "fd08::/64", "fd09::1")}[family]
    place = st.fixed_dictionaries(
        {"table": st.sampled_from((1003, "1004")), "to": st.sampled_from(prefixes), "family": st.just(family)},
        optional={"metric": st.sampled_from((0, 7))},
    )
    mtu = {"mtu": st.sampled_from((1300, 1400))}
    way = st.one_of(
        st.fixed_dictionaries({"dev": st.just("eth0"), "via": gateway}, optional=mtu),
        st.fixed_dictionaries({"dev": st.just("eth0")}, optional=mtu),
        st.fixed_dictionaries({"type": st.sampled_from(("blackhole", "unreachable"))}),
    )
    return st.builds(lambda one, other: {**one, **other}, place, way)


rules = st.sampled_from(("ipv4", "ipv6")).flatmap(_rule)
routes = st.sampled_from(("ipv4", "ipv6")).flatmap(_route)


def _bare(entry: Entry) -> Entry:
    """The entry without its link, if the link is optional: the IPv6 gateways are link-local and need one."""
    has_near_gateway = entry["family"] == "ipv4" and "via" in entry
    return {key: value for key, value in entry.items() if not (has_near_gateway and key == "dev")}


desired_routes = routes | routes.map(_bare)
