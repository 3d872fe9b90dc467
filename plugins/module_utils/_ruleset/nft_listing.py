# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ruleset as ``nft list ruleset`` prints it, read into permitted statements and rendered again for ``nft -f``."""

from __future__ import annotations

import re
import typing as t

from .._core import memo
from .._core.fields import Unfit
from . import nft_words

# First words of the statements of each block, besides "comment". A flowtable's hardware offload is not among them.
_SET = (
    *("type", "typeof", "flags", "timeout", "gc-interval", "size", "auto-merge", "policy", "elements"),
    *("counter", "quota", "limit", "last", "ct"),
)
SETS = ("set", "map")
BLOCKS: dict[str, t.Collection[str]] = {
    "chain": nft_words.words(
        """
        type policy accept add ah arp cgroup comp continue counter cpu ct day dccp delete dnat drop dst dup esp ether
        exthdr fib frag fwd geneve goto gre gretap hbh hour ibriport ibrname ibrpvid ibrvproto icmp icmpv6 igmp iif
        iifgroup iifkind iifname iiftype ip ip6 ipsec jhash jump last limit log mark masquerade meta meter mh notrack
        numgen obriport obrname oif oifgroup oifkind oifname oiftype osf pkttype queue quota random redirect reject return
        rt rtclassid sctp sdif sdifname set skgid skuid snat socket symhash synproxy tcp th time tproxy tunnel udp udplite
        update vlan vxlan flow @
        """
    ),
    **dict.fromkeys(SETS, _SET),
    "flowtable": ("hook", "priority", "devices", "counter"),
    "counter": ("packets", "bytes"),
    "quota": ("over", "until", "used"),
    "limit": ("rate", "burst"),
    "secmark": (),
    "synproxy": ("mss", "wscale", "timestamp", "sack-perm"),
    "ct helper": ("type", "l3proto"),
    "ct timeout": ("protocol", "l3proto", "policy"),
    "ct expectation": ("protocol", "dport", "timeout", "size", "l3proto"),
}
_VALUES_FIRST = ("quota", "secmark")  # blocks whose statements may begin with a number or a text
# The kernel removes a table with these flags when the process that created it ends. firewalld's is one.
OWNED = ("owner", "persist")
# A set with one of these flags grows with its elements. Of others, the kernel makes a hash table for the whole size at once
# (net/netfilter/nft_set_hash.c, nft_hash_init).
_GROWING = frozenset(("dynamic", "interval", "timeout"))
_LARGEST_SIZE = 2**32 - 1
MOST_NOTES = 40
_LINE = re.compile("^.*", re.MULTILINE)


class Listing(t.NamedTuple):
    """text: for nft, each statement on the line on which it was given.

    tables: family and name of each table. notes: what was left out and what is permitted in its place, in sentences. allocated:
    elements for which the kernel allocates memory when it creates the sets.
    """

    text: str
    tables: list[tuple[str, str]]
    notes: list[str]
    allocated: int


@memo.of_part
def read(text: str, reserved: t.Container[str] = ()) -> Listing:
    """Read a ruleset. Whatever is not a permitted statement of a table is left out and named.

    reserved: names of tables that are left out.
    """
    return _Reader(text, reserved).read()


def check(kind: str, words: t.Sequence[str]) -> None:
    """Check a statement of a block. Raises Unfit that names the word that is not permitted."""
    statement = "a rule" if kind == "chain" else f"a statement of a {kind}"
    first, permitted = words[0], BLOCKS[kind]
    if first not in permitted and first != "comment" and not (kind in _VALUES_FIRST and nft_words.is_value(first)):
        listed = "a permitted word of nft" if kind == "chain" else f"one of {', '.join((*permitted, 'comment'))}"
        raise Unfit(f"{statement} that begins with {listed} in place of {first!r}")
    refused = nft_words.refused(_without_devices(words))
    if refused is not None:
        raise Unfit(f"{statement} with permitted words of nft in place of {refused!r}")


def allocated(statements: t.Iterable[t.Sequence[str]]) -> int:
    """Return the elements for which the kernel allocates memory when it creates a set with these statements."""
    size, flags = 0, set[str]()
    for words in statements:
        if words[0] == "size":
            size += sum(int(word) if re.fullmatch("[0-9]{1,10}", word) else _LARGEST_SIZE for word in words[1:2])
        elif words[0] == "flags":
            flags.update(words)
    return 0 if flags & _GROWING else size


def _without_devices(words: t.Sequence[str]) -> t.Sequence[str]:
    """Return the words without the names of links that nft lists without quotes, as ``devices = { eth0, eth1 }``."""
    if "devices" not in words or "}" not in words:
        return words
    first, last = words.index("devices"), words.index("}")
    pairs = zip(words[first:last], words[first + 1 : last])
    rest = [word for before, word in pairs if before not in ("{", ",") or not nft_words.is_name(word)]
    return [*words[: first + 1], *rest, *words[last:]]


class _Lines:
    """Statements, each on a line. The words of lines to which no more comes are one text: they take ten times as much."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._texts, self._first = list[str](), 0  # what is before the line from which on words may come
        self._rows: list[list[str]] = [[]]  # the words of lines from there on

    def add(self, line: int, words: t.Iterable[str]) -> None:
        """Add a statement with the line breaks of its sets."""
        row = self._row(line)
        if row and row[-1] not in ("{", ";"):
            row.append(";")
        for word in words:
            if word == "\n":
                line = min(line + 1, self._count - 1)  # a cut text may end within a set
                row = self._row(line)
            else:
                row.append(word)

    def end(self, line: int) -> tuple[int, int, list[str]]:
        """Say that no more comes before a line. Return what back() takes."""
        row = self._row(line)
        if line > self._first:
            self._texts.append("\n".join(map(" ".join, self._rows[: line - self._first])))
            del self._rows[: line - self._first]
            self._first = line
        return line, len(self._texts), [*row]

    def back(self, line: int, texts: int, row: list[str]) -> None:
        """Leave out what was added since end()."""
        del self._texts[texts:]
        self._first, self._rows = line, [row]

    def text(self) -> str:
        self.end(self._count)
        return "\n".join([*self._texts, ""])

    def _row(self, line: int) -> list[str]:
        self._rows += ([] for _line in range(line - self._first - len(self._rows) + 1))
        return self._rows[line - self._first]


class _Reader:
    """Tokens of a ruleset, read from the front, line by line."""

    def __init__(self, text: str, reserved: t.Container[str]) -> None:
        end = len(text) - text.endswith("\n")
        self._source = (match[0] for match in _LINE.finditer(text, 0, end))
        self._tokens, self._place, self._line = list[str](), 0, 0
        self._reserved = reserved
        self._lines = _Lines(text.count("\n", 0, end) + 1)
        self._tables: list[tuple[str, str]] = []
        self._notes: list[str] = []
        self._left_out = self._allocated = 0

    def _has_more(self) -> bool:
        """Return whether a token follows, of the next line if need be."""
        if self._place >= len(self._tokens):
            line = next(self._source, None)
            self._tokens, self._place = [] if line is None else [*nft_words.tokens(line), "\n"], 0
        return bool(self._tokens)

    def read(self) -> Listing:
        while self._has_more():
            line, words, end = self._words("{}")
            if end == "{":
                self._table(line, words)
            elif words or end == "}":
                self._leave_out(line, words or [end], "a table with its family, its name and its contents")
        if self._left_out > MOST_NOTES:
            self._notes.append(f"nft: {self._left_out - MOST_NOTES} further lines are not in the twin.")
        return Listing(self._lines.text(), self._tables, self._notes, self._allocated)

    def _table(self, line: int, words: list[str]) -> None:
        family, name = words[1:] if len(words) == 3 else ("ip", words[-1] if words else "")
        is_table = len(words) in (2, 3) and words[0] == "table" and family in nft_words.FAMILIES and nft_words.is_name(name)
        if not is_table or name in self._reserved:
            self._skip_block()
            return self._leave_out(line, [*words, "{"], "a table with its family and a name of its own")
        before = self._lines.end(line)
        self._lines.add(line, ["table", family, name, "{"])
        while self._has_more():
            start, words, end = self._words("{}")
            if end == "{":
                self._object(start, words)
            elif words:
                self._property(start, words)
            if end == "}":
                self._lines.add(self._line, ["}"])
                self._tables.append((family, name))
                return None
        self._lines.back(*before)
        return self._leave_out(line, ["table", family, name], "a table that ends")

    def _property(self, line: int, words: list[str]) -> None:
        if words[0] == "flags":
            words = ["flags", *(word for word in words[1:] if word not in (*OWNED, ","))]
            words = [word for flag in words for word in (flag, ",")][:-1] if len(words) > 1 else []
            words[1:2] = []
        refused = nft_words.refused(words)
        if words and (words[0] not in ("flags", "comment") or refused is not None):
            allowed = f"one of {', '.join((*BLOCKS, 'flags', 'comment'))} in place of {refused or words[0]!r}"
            return self._leave_out(line, words, allowed)
        return self._lines.add(line, words) if words else None

    def _object(self, line: int, words: list[str]) -> None:
        kind, name = " ".join(words[:-1]), words[-1] if words else ""
        if kind not in BLOCKS or not nft_words.is_name(name):
            self._skip_block()
            return self._leave_out(line, [*words, "{"], f"one of {', '.join(BLOCKS)}, and a name")
        self._lines.add(line, [*words, "{"])
        statements: list[list[str]] = []
        while self._has_more():
            start, words, end = self._words("}")
            if words:
                try:
                    check(kind, words)
                    self._lines.add(start, words)
                    statements.append(words)
                except Unfit as unfit:
                    self._leave_out(start, words, str(unfit))
            if end == "}":
                self._allocated += allocated(statements) if kind in SETS else 0
                self._lines.end(self._line)
                return self._lines.add(self._line, ["}"])
        return None

    def _words(self, ends: str) -> tuple[int, list[str], str]:
        """Return the line of a statement, its words with the braces and line breaks of its sets, and the token that ends it.

        ends: the braces that end a statement, besides ";" and a line break.
        """
        while self._has_more() and self._tokens[self._place] in ("\n", ";"):
            self._line += self._tokens[self._place] == "\n"
            self._place += 1
        line, depth, end, words = self._line, 0, "", list[str]()
        while not end and self._has_more():
            tokens, place = self._tokens, self._place
            for place in range(self._place, len(tokens)):
                word = tokens[place]
                if word == "}" and depth:
                    depth -= 1
                elif not depth and (word in ends or word in ("\n", ";")):
                    end = word
                    break
                elif word == "{":
                    depth += 1
            else:
                place += 1
            words += tokens[self._place : place]
            self._place = place
        self._line += words.count("\n")
        self._place += end in ("{", "}")
        return line, words, end

    def _skip_block(self) -> None:
        depth = 1
        while depth and self._has_more():
            word = self._tokens[self._place]
            depth += {"{": 1, "}": -1}.get(word, 0)
            self._line += word == "\n"
            self._place += 1

    def _leave_out(self, line: int, words: t.Iterable[str], allowed: str) -> None:
        self._left_out += 1
        if self._left_out <= MOST_NOTES:
            statement = " ".join(word for word in words if word != "\n")[:120]
            statement = statement if statement.isprintable() else repr(statement)
            self._notes.append(f"nft: line {line + 1} of the ruleset is not in the twin. It must be {allowed}: {statement}")
