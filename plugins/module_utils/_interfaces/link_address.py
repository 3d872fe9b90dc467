# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An address that this collection adds to a link of the node, and the record of the addresses that it has added."""

from __future__ import annotations

import json
import re
import typing as t

from .._core import fields, names
from .._core.codec import exactly
from .._core.errors import Invalid
from .._core.fields import BITS, IPV6, Unfit
from .link_message import NODAD, NOPREFIXROUTE


class LinkAddress(t.NamedTuple):
    """An address for link ``dev``. It is added without a route to its prefix (noprefixroute), so that only the local table
    changes and all packets are routed as before.

    length: of the prefix.
    """

    dev: str
    local: bytes
    length: int

    def __str__(self) -> str:
        return f"{self.prefix} dev {self.dev}"

    @property
    def prefix(self) -> str:
        return f"{fields.show(self.local)}/{self.length}"

    @property
    def flags(self) -> int:
        """Return IFA_FLAGS.

        An IPv6 address needs no duplicate address detection (nodad): the cloud gives it to this ENI alone.
        """
        return NOPREFIXROUTE | (NODAD if len(self.local) == 16 else 0)

    @property
    def words(self) -> str:
        """Return the address as arguments of ip-address(8)."""
        return f"{self} noprefixroute{' nodad' if self.flags & NODAD else ''}"


class AddedAddress(t.NamedTuple):
    """An address that this collection has added to the link with this index. A link that is replugged has another index."""

    ifindex: int
    address: LinkAddress


def from_options(entries: t.Sequence[t.Any]) -> dict[LinkAddress, str]:
    """Return the desired addresses, each with the option that it is from.

    Raises Invalid for the first entry that is not valid.
    """
    options: dict[LinkAddress, str] = {}
    lengths: dict[tuple[str, bytes], int] = {}
    for number, entry in enumerate(entries):
        option = f"addresses[{number}]"
        address = _entry(option, entry)
        if lengths.setdefault((address.dev, address.local), address.length) != address.length:
            former = lengths[address.dev, address.local]
            raise Invalid(f"{option}.address", entry["address"], f"of length {former}, as in an earlier entry for {address.dev}")
        options.setdefault(address, option)
    return options


def _entry(option: str, entry: t.Any) -> LinkAddress:
    if not isinstance(entry, dict):
        raise Invalid(option, entry, "a dictionary with dev and address")
    for key in entry:
        if key not in ("dev", "address"):
            raise Invalid(f"{option}.{key}", entry[key], "left out; known here are dev and address")
    for key in ("dev", "address"):
        if not isinstance(entry.get(key), str):
            raise Invalid(f"{option}.{key}", entry.get(key), "a string")
    try:
        local, length = _address(entry["address"])
    except Unfit as unfit:
        raise Invalid(f"{option}.address", entry["address"], str(unfit)) from None
    return LinkAddress(names.interface(f"{option}.dev", entry["dev"]), local, length)


def _address(text: str) -> tuple[bytes, int]:
    host, slash, digits = text.partition("/")
    try:
        family, local = fields.address(host)
        length = fields.number(digits, 1, BITS[family]) if slash else BITS[family]
    except Unfit:
        raise Unfit("an IP address, or ADDRESS/LENGTH") from None
    if family == IPV6:
        is_hosts = local[0] != 0xFF and int.from_bytes(local, "big") > 1 and not fields.is_link_local(local)
    else:
        is_hosts = 0 < local[0] < 224 and local[0] != 127
    if not is_hosts:
        raise Unfit("a unicast address that is neither loopback nor IPv6 link-local")
    return local, length


def from_words(words: str) -> LinkAddress | None:
    """Parse LinkAddress.words. None for a text of another form."""
    match = re.match(r"(\S+) dev (\S+) noprefixroute", words)
    try:
        return LinkAddress(match[2], *_address(match[1])) if match else None
    except Unfit:
        return None


def record_text(record: t.Iterable[AddedAddress]) -> str | None:
    """Return the record as JSON; None for an empty record."""
    lines = [json.dumps([ifindex, address.dev, address.prefix]) for ifindex, address in sorted(record)]
    return "[\n  " + ",\n  ".join(lines) + "\n]\n" if lines else None


def record_from(text: str) -> frozenset[AddedAddress]:
    """Parse a record. A text that is not a record counts as empty: no address is known to be added by this collection."""
    try:
        entries = json.loads(re.sub("^#.*", "", text) or "[]")
        return frozenset(_added_address(*entry) for entry in entries)
    except (TypeError, ValueError, RecursionError):
        return frozenset()


def _added_address(ifindex: t.Any, dev: t.Any, address: t.Any) -> AddedAddress:
    """Parse one entry of a record. Raises ValueError for an entry of another form."""
    return AddedAddress(exactly(int, ifindex), LinkAddress(exactly(str, dev), *_address(exactly(str, address))))
