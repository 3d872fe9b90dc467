# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Valid JSON of an unexpected shape: each reader raises its own error or ignores the part. None raises another exception."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import metadata
from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec, json_object
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_address
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import backup_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_table
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy
from unit import journals
from unit._leftovers import backups
from unit._probe_snat.test_probe_snat import listing

NESTED = "[" * 100_000
INFINITE = float("inf")
OTHERS: list[t.Any] = [None, True, 1, -1.5, INFINITE, -INFINITE, INFINITE - INFINITE, 10**400, "x", "", [], [1], {}, {"x": 1}]


def read_backup(text: str) -> object:
    return backup_backend.to_text(backup_backend.from_text(text))


def read_policy(text: str) -> object:
    return policy.from_text(text, {}).text()


def read_record(text: str) -> object:
    return link_address.record_text(link_address.record_from(text))


def read_listing(text: str) -> object:
    return nft_table.from_listing(json_object.load(text)).text()


ROUTES = [{"table": "1005", "to": "default", "via": "10.0.1.1", "dev": "eth1"}]
RULES = [{"priority": 700, "from": "10.0.1.5", "table": "1005"}]
AZURE = [
    {
        "macAddress": "000D3AF806EC",
        "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}], "subnet": [{"address": "10.0.0.0", "prefix": "16"}]},
    }
]
CONFIGURATION = {"plugins": [{"type": "azure-vnet", "bridge": "azure0", "ipsToRouteViaHost": ["169.254.20.10"]}]}
ENTRY = json.loads(journals.entry("x", files.Remove("/x")))

# The reader, a correct text as a value, and the exceptions that it may raise.
READERS: dict[str, tuple[t.Callable[[str], object], t.Any, tuple[type[Exception], ...]]] = {
    "backup": (read_backup, json.loads(backups.SHORT), (backup_backend.Damaged,)),
    **{
        f"backup of 1.0.0 {number}": (read_backup, json.loads(text), (backup_backend.Damaged,))
        for number, text in enumerate(backups.FORMER)
    },
    "policy": (read_policy, {"protocol": 75, "rules": RULES, "routes": ROUTES}, (Invalid,)),
    "link addresses": (read_record, [[7, "eth1", "10.0.1.5/24"]], ()),
    "journal": (lambda text: codec.decode(text, journals.KNOWN), ENTRY, (codec.Unreadable,)),
    "metadata": (metadata.azure, AZURE, (metadata.Garbled,)),
    "CNI": (cni.plugins_in, CONFIGURATION, ()),
    "azure-vnet's CNI": (cni.azure_vnet_in, CONFIGURATION, ()),
    "nft": (read_listing, listing(), (ValueError,)),
}


def places(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """The paths in a value: of the value itself, and of everything inside it."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def with_other(value: t.Any, path: tuple[t.Any, ...], other: t.Any) -> t.Any:
    if not path:
        return other
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = other
    return changed


@pytest.mark.parametrize(("read", "good", "allowed"), READERS.values(), ids=READERS.keys())
def test_whatever_stands_in_a_values_place_is_told_or_passed_over(
    read: t.Callable[[str], object], good: t.Any, allowed: tuple[type[Exception], ...]
) -> None:
    read(json.dumps(good))
    for path in places(good):
        for other in OTHERS:
            try:
                read(json.dumps(with_other(good, path, other)))
            except allowed as told:
                assert str(told)
            except Exception as error:
                pytest.fail(f"{other!r} at {path}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(("read", "good", "allowed"), READERS.values(), ids=READERS.keys())
def test_no_depth_is_too_much(read: t.Callable[[str], object], good: t.Any, allowed: tuple[type[Exception], ...]) -> None:
    for text in (NESTED, NESTED + "]" * len(NESTED)):
        try:
            read(text)
        except allowed as told:
            assert str(told)


@pytest.mark.parametrize(
    "number", ["Infinity", "-Infinity", "NaN", "1e999", "-1e999", "1" * 21, "1" * 5000, "-" + "1" * 10_000_000]
)
def test_a_number_that_no_field_holds_stays_a_text(number: str) -> None:
    assert json_object.load(f'{{"mtu": {number}}}') == {"mtu": number}


@pytest.mark.parametrize("number", [0, -1, 2**64 - 1, -(2**63), 1.5, 1e300])
def test_other_numbers_are_numbers(number: float) -> None:
    assert json_object.load(json.dumps([number])) == [number]
