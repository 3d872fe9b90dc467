# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds a twin in the process's own network namespace, and reads back what the kernel made of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import time
import typing as t

from .._core import json_object
from .._core.errors import Failure, MissingProgram, Refusal
from .._files import files
from .._netfilter import rule_words
from .._netlink import nfnetlink, wire
from .._platform import kernel, process
from .._routing import routing_backend
from .._routing.route import HOST, LINK, Route
from .._routing.routing_backend import Netlink
from .._ruleset import inventory, nft_json, nft_objects, nft_text
from .._snapshot import netfilter_backend
from .._snapshot.assumption import FAMILY as OF_FAMILY
from .._snapshot.assumption import LINK as OF_LINK
from .._snapshot.assumption import Assumption, Concern
from .._snapshot.values import Entry, Snapshot
from . import blueprint, foreign_tables, lacking, link_messages
from .blueprint import LOCAL_TABLE, OWN_TABLE, Blueprint
from .isolation_backend import Isolated
from .legacy_half import Hook
from .link_messages import NewLink
from .substitutions import SETTING, gap, replaced
from .virtual_servers import TOKEN

IP, NFT = ("ip", "iproute2"), ("nft", "nftables")  # programs without which there is no twin, and their packages
LOOPBACK_INDEX = 1  # of every network namespace (LOOPBACK_IFINDEX)
PART = 100  # links, or lines for ip, at a time: without root, a socket takes no more than net.core.wmem_max bytes
REMOVED = 250  # links at a time
LOOKS, PAUSE = 5000, 0.002  # looks whether the kernel's linkwatch, which waits for its lock, has noticed; seconds between two
# New links take the values of default. The kernel adds no addresses to them, and limits no ICMP errors.
FIRST = (
    ("net/ipv6/conf/default/addr_gen_mode", 1),
    ("net/ipv6/conf/default/accept_ra", 0),
    ("net/ipv6/conf/default/dad_transmits", 0),
    ("net/ipv6/conf/default/router_solicitations", 0),
    ("net/ipv4/icmp_ratelimit", 0),
    ("net/ipv6/icmp/ratelimit", 0),
)
_FAILED = re.compile(r"Command failed -:(\d+)")
EXISTS, GONE = (
    "File exists",
    ("No such file or directory", "No such process"),
)  # the kernel's answers to a line that was run before
# In a listing of nft.
_TABLE = re.compile(r"^table (\S+) (\S+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_TABLE_OF_SAVE = re.compile(r"^\*(\S+)\n((?:(?!\*).*\n)*)", re.MULTILINE)  # that of ebtables has no COMMIT
_SET = re.compile(r"^\tset (\S+) \{\n(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_DYNAMIC = re.compile(r"^\t\tflags \S*\bdynamic\b", re.MULTILINE)
ELEMENTS = re.compile(r"elements = \{ (.*?) \}\s*\n", re.DOTALL)
_BAD_LINE = re.compile(r"line:? (\d+)")
_LACKING = re.compile(r"Extension (\w+) revision \d+ not supported")  # by the kernel: a warning before the error
MOST_BAD_LINES = 40
MOST_BAD_OBJECTS = 10  # of nft's JSON, each of which takes some runs of nft to find
FAMILIES = {program: family for family, program in foreign_tables.RESTORES.items()}

# The trace begins before all chains of the snapshot: at the lowest priority, at which the kernel calls the newest chain first.
TRACE = """\
table inet {table} {{
  chain prerouting {{ type filter hook prerouting priority -2147483648; {mark} meta nftrace set 1; }}
  chain output {{ type filter hook output priority -2147483648; meta nftrace set 1; }}
  chain routing {{ type filter hook prerouting priority -90; }}
  chain rerouting {{ type filter hook output priority -90; }}
  chain tracking {{ type filter hook prerouting priority -90; {tracking} }}
}}
"""  # routing and rerouting are behind the translation of destinations (-100): they show what a packet is routed by
TRACE_LINKS = """\
table netdev {table} {{
  chain ingress {{ type filter hook ingress devices = {{ {links} }} priority -2147483648; meta nftrace set 1; }}
}}
"""  # for chains at ingress, which packets meet before
TRACE_BRIDGE = """\
table bridge {table} {{
  chain prerouting {{ type filter hook prerouting priority -2147483648; meta nftrace set 1; }}
  chain output {{ type filter hook output priority -2147483648; meta nftrace set 1; }}
}}
"""  # output: requests for MAC addresses, which pass no other family


Part = t.TypeVar("Part")
Place = tuple[str, str, str]  # of a chain: family, table and name


class Twin(t.NamedTuple):
    """texts: what was loaded by each program, after the lines that it refused were left out.

    bypassed: chains of the node's tables, and the handle of the twin's own rule in each: one of FORWARD accepts what IPVS sends
    on without it, and one of a hook leads to rules of iptables-legacy.
    """

    texts: dict[str, str]
    bypassed: dict[Place, int]
    notes: list[Assumption]


def refuse_to_load_modules(snapshot: Snapshot) -> None:
    """Raise Refusal if a twin would make this node's kernel load modules: a trace changes nothing on the node."""
    needed = ["veth", "nf_tables"]
    names = {*(each.table for each in snapshot.iptables), *(each.table for each in snapshot.ebtables)}
    if names:
        needed.append("nft_compat")
    if "nat" in names:
        needed.append("nft_chain_nat")
    if kernel.is_ready("nf_conntrack"):
        needed.append("nf_conntrack_netlink")
    missing = [name for name in needed if not kernel.is_ready(name)]
    if missing:
        raise Refusal(
            f"a twin on this node needs modules that the kernel has not loaded: {', '.join(missing)}. Nothing was changed."
            f" Load them (modprobe -a {' '.join(missing)}), or rebuild the node's snapshot on another machine"
        )


def build(drawn: Blueprint, isolated: Isolated, run: process.Runner, mark: int = 0) -> Twin:
    """Build the twin. mark: set on each packet that comes in. Raises Failure."""
    notes: list[Assumption] = []
    isolated.tell(f"create {len(drawn.links)} links")
    for path, value in FIRST:
        _set(path, value)
    drawn = drawn._replace(links=_created_links(drawn.links, isolated, notes))
    _settings(drawn, notes)
    isolated.tell(f"add addresses, rules and neighbours by {len(drawn.commands)} lines of ip, and {len(drawn.routes)} routes")
    _ip(run, drawn.commands, notes)
    _add_routes(run, drawn, notes)
    texts = {}
    for program, parts in itertools.groupby(drawn.restores, lambda restore: restore[0]):
        text = "".join(text for _program, text in parts)
        isolated.tell(f"load {len(text.splitlines())} lines by {program}")
        texts[program] = _restore(run, program, text, notes)
    isolated.tell("load the ruleset of nft")
    objects = _load_rulesets(run, drawn, notes)
    notes += _differences(texts, objects, drawn)
    set_mark = f"meta mark set {mark:#x};" if mark else ""
    has_bridge = any(link.kind == "bridge" for link in drawn.links)
    bypassed = {**(_bypass_forward(run, drawn.servers) if drawn.servers else {}), **_add_hooks(run, drawn.hooks)}
    # Chains of nat are passed without connection tracking, which only rules that translate start in a network namespace.
    tables = [*nft_json.tables(drawn.ruleset), *nft_text.tables(drawn.ruleset_text)]
    chains = [chain for table in tables for chain in table.chains.values()]
    of_iptables = (text for program, text in texts.items() if FAMILIES.get(program) in ("ip", "ip6"))
    has_nat = any(chain.kind == "nat" for chain in chains) or any("*nat\n" in text for text in of_iptables)
    tracking = "ct state new continue;" if has_nat else ""
    _nft(run, (TRACE + TRACE_BRIDGE * has_bridge).format(table=OWN_TABLE, mark=set_mark, tracking=tracking))
    links = nft_objects.quoted(sorted({name for chain in chains for name in chain.devices} & {*drawn.names.values()}))
    if links:  # a kernel that refuses this has refused the chains there
        _refused_by_nft(run, TRACE_LINKS.format(table=OWN_TABLE, links=links))
    await_carriers(drawn.links)
    return Twin(texts, bypassed, notes)


@contextlib.contextmanager
def dormant(run: process.Runner, family: str, table: str) -> t.Iterator[None]:
    """Take the chains of a table out of the packets' way while the context lasts. Raises Failure."""
    _nft(run, f"add table {family} {table} {{ flags dormant; }}\n")
    try:
        yield
    finally:
        _nft(run, f"add table {family} {table}\n")


def filled_sets(run: process.Runner) -> dict[Place, str]:
    """Return the sets that packets fill, with their elements as nft reads them. Raises Failure."""
    filled = {}
    # The JSON of nft 1.0.6 lacks the flag.
    for family, table, sets in _TABLE.findall(_nft(run, "list sets")):
        for name, body in _SET.findall(sets):
            if _DYNAMIC.search(body):
                elements = ELEMENTS.search(body)
                filled[family, table, name] = f"{{ {elements[1]} }}" if elements else ""
    return filled


def refill(run: process.Runner, sets: t.Mapping[Place, str]) -> None:
    """Give sets that packets have filled the elements that they had before. Raises Failure."""
    lines = [f"flush set {' '.join(place)}" for place in sets]
    lines += [f"add element {' '.join(place)} {elements}" for place, elements in sets.items() if elements]
    _nft(run, "\n".join([*lines, ""]))


def _bypass_forward(run: process.Runner, servers: t.Mapping[str, list[str]]) -> dict[Place, int]:
    """Add rules that let what IPVS translated pass the chains of FORWARD. Return their handles. Raises Failure."""
    objects = json_object.load(_nft(run, "list chains", "-j"))["nftables"]
    places = {
        (table.family, table.name, name)
        for table in nft_json.tables(objects)
        for name, chain in table.chains.items()
        if chain.hook == "forward" and table.family in ("ip", "ip6", "inet")
    }
    lines = [
        f"insert rule {' '.join(place)} ct original {family} daddr {{ {', '.join(hosts)} }} ct status dnat ct state new accept"
        for place in sorted(places)
        for family, hosts in servers.items()
        if place[0] in (family, "inet")
    ]
    _nft(run, "\n".join([*lines, ""]))
    return {
        (family, table, name): next((rule.handle for rule in nfnetlink.rules(family, table) if rule.chain == name), 0)
        for family, table, name in places
    }


def _add_hooks(run: process.Runner, hooks: t.Sequence[Hook]) -> dict[Place, int]:
    """Let packets come to the rules of iptables-legacy. Return the handles of the rules that lead there. Raises Failure."""
    if hooks:
        _nft(run, "".join(hook.lines for hook in hooks))
    tables = dict.fromkeys((hook.family, hook.table) for hook in hooks)
    bases = {(hook.family, hook.table, hook.base) for hook in hooks}
    rules = ((place, rule) for place in tables for rule in nfnetlink.rules(*place))
    return {(*place, rule.chain): rule.handle for place, rule in rules if (*place, rule.chain) in bases}


def _created_links(links: t.Sequence[NewLink], isolated: Isolated, notes: list[Assumption]) -> list[NewLink]:
    """Create the links. Return those that the kernel did not refuse."""
    for open_socket in (wire.open_socket, isolated.netlink.dup):
        wire.exchange([link_messages.set_link_up(LOOPBACK_INDEX, 1)], open_socket)
    created: list[NewLink] = []
    for first in range(0, len(links), PART):
        part = links[first : first + PART]
        requests = [
            link_messages.create_link(link, isolated.world, number, (first + number - 1) // REMOVED + 1)
            for number, link in enumerate(part, 1)
        ]
        refused = wire.exchange(requests)
        for number, error in refused.items():
            name = part[number - 1].name
            sentence = f"The twin lacks the link {name}, which the kernel refused: {error.text or os.strerror(error.code)}."
            notes.append(gap(sentence, Concern(OF_LINK, name)))
        created += [link for number, link in enumerate(part, 1) if number not in refused]
    # A bridge takes the size of its ports if none was set while it existed (br_mtu_auto_adjust).
    sized = [link for link in created if link.kind == "bridge" and link.mtu]
    wire.exchange([link_messages.set_mtu(link, number) for number, link in enumerate(sized, 1)])
    # The kernel does not set the other end up while it creates the pair (veth_open).
    ended = [link for link in created if link.kind == "veth" and link.has_carrier]
    for first in range(0, len(ended), PART):
        part = ended[first : first + PART]
        wire.exchange(
            [link_messages.set_link_up(link.number, number) for number, link in enumerate(part, 1)], isolated.netlink.dup
        )
    return created


def await_carriers(links: t.Sequence[NewLink]) -> None:
    """Wait until the kernel has noticed the carriers: before, it drops what leaves by a link, without a word. Raises Failure."""
    awaited = {link.number for link in links if link.kind == "veth" and link.is_up and link.has_carrier}
    up = {link.number for link in links if link.is_up}
    awaited |= {link.master for link in links if link.number in awaited and link.master in up}
    for _look in range(LOOKS):
        if awaited <= link_messages.operational_links(routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)):
            return
        time.sleep(PAUSE)
    raise Failure("the kernel has not noticed that links of the twin are up. Run again when the machine is less busy")


def remove_links(isolated: Isolated, count: int) -> None:
    """Remove the links of a twin in parts. count: of its links.

    The kernel removes all links of a namespace that ends at once, and holds its lock for links of all namespaces meanwhile: for
    0.7 s with 2,000 of them.
    """
    if count > REMOVED:
        groups = range(1, (count - 1) // REMOVED + 2)
        with contextlib.suppress(Failure):  # the namespaces end anyway
            wire.exchange([link_messages.delete_group(group, group) for group in groups], isolated.netlink.dup)


def _settings(drawn: Blueprint, notes: list[Assumption]) -> None:
    """Write the settings that differ. All links of a new network namespace have the same values, except the loopback."""
    usual: dict[str, str] = {}
    for path, value in drawn.settings:
        *folder, key = path.split("/")
        is_link = len(folder) == 4 and folder[-1] not in ("all", "default", blueprint.LOOPBACK)
        place = f"{folder[1]}/{key}" if is_link else path
        if place not in usual:
            usual[place] = _get(path)
        if usual[place] == str(value):
            continue
        if not usual[place]:
            if value:
                notes.append(_unset(path, value, "this kernel lacks it"))
        elif not _set(path, value):
            notes.append(_unset(path, value, "the kernel refused it"))
        elif not is_link:
            usual.clear()  # a setting of the node or of all links changes those of the links


def _unset(path: str, value: int, reason: str) -> Assumption:
    key, link = path.replace("/", "."), path.split("/")[3:-1]
    concerns = [Concern(OF_LINK, name) for name in link if name not in blueprint.BOTH]
    return replaced(SETTING, f"{key} = {value} is not in the twin: {reason}.", *concerns, subject=key)


def _get(path: str) -> str:
    try:
        return files.text(f"/proc/sys/{path}").strip()
    except (OSError, ValueError):
        return ""


def _set(path: str, value: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/sys/{path}", "w") as file:
        file.write(str(value))
        return True
    return False


def _ip(run: process.Runner, lines: t.Sequence[str], notes: list[Assumption]) -> list[str]:
    """Run the lines, those for IPv6 last, and return the lines that failed."""
    failed = []
    for family in ("-4", "-6"):
        of_family = [
            line.partition(" ")[2] if line.startswith("-") else line
            for line in lines
            if line.startswith("-6") == (family == "-6")
        ]
        failed += [f"{family} {line}" for line in _batch(run, family, of_family, notes)]
    return failed


def _batch(
    run: process.Runner, family: str, lines: t.Sequence[str], notes: list[Assumption], is_again: bool = False
) -> t.Iterator[str]:
    """Run the lines, and yield those that failed. is_again: whether some of them may have been run before."""
    if not lines:
        return
    completed = run([_program(*IP), *([family] if family == "-6" else []), "-force", "-batch", "-"], "\n".join([*lines, ""]))
    # At a word that it does not know, ip ends even with -force, and leaves out the lines behind it.
    if completed.rc not in (0, 1) and len(lines) > 1:
        middle = len(lines) // 2
        for part in (lines[:middle], lines[middle:]):
            yield from _batch(run, family, part, notes, is_again=True)
        return
    reason = ""
    for message in _errors(completed.stderr):
        match = _FAILED.search(message)
        if match:
            line = lines[int(match[1]) - 1]
            if is_again and reason.endswith(GONE if " del " in line else EXISTS):
                reason = ""
                continue
            sentence = f"The twin lacks `ip {line}`: {reason.partition(': ')[2] or reason or 'it failed'}."
            notes.append(gap(sentence, *lacking.by_line(family, line)))
            reason = ""
            yield line
        else:
            reason = message.rstrip(".")
    if completed.rc not in (0, 1):
        notes.append(gap(f"The twin lacks `ip {lines[0]}`: {reason}.", *lacking.by_line(family, lines[0])))
        yield lines[0]


def _errors(stderr: str) -> list[str]:
    """Return the lines of an output without warnings, because a warning may be about another line than the error after it."""
    lines = (line.strip() for line in stderr.splitlines())
    return [line for line in lines if line and not line.startswith("Warning")]


def _program(name: str, package: str) -> str:
    path = process.find(name)
    if path is None:
        raise MissingProgram(f"{name} (package {package}) is needed for a twin and is not installed")
    return path


def require_programs() -> None:
    """Raise MissingProgram if no twin can be built here, whatever the node has."""
    for program in (IP, NFT):
        _program(*program)


def _add_routes(run: process.Runner, drawn: Blueprint, notes: list[Assumption]) -> None:
    """Add the routes that the twin lacks, and remove those that the kernel added with addresses and the node does not have."""
    desired = dict(drawn.routes)
    current = {route for route, _protocol in Netlink().routes()}
    # A gateway has to be reachable when its route is added: routes without one come first.
    lacking = sorted(
        (route for route in desired if route not in current),
        key=lambda route: (_distance(route), route.family, route.table, route.dst),
    )
    failed = _ip(run, [blueprint.route_line(route, desired[route]) for route in lacking], [])
    _ip(run, [f"{line} onlink" if " via " in line and " onlink" not in line else line for line in failed], notes)
    surplus = [
        route
        for route in current
        if (route.family, route.table) in drawn.tables and route.table != LOCAL_TABLE and route not in desired
        and not any(route.is_like(other) for other in desired)
    ]  # fmt: skip
    _ip(run, [blueprint.route_line(route, "").replace(" append ", " del ", 1) for route in surplus], notes)


def _distance(route: Route) -> int:
    """Return 0 for a route without a gateway, and 1 for a route by a gateway."""
    return 0 if route.scope in (LINK, HOST) or not any(hop.via for hop in route.hops) else 1


def _restore(run: process.Runner, program: str, text: str, notes: list[Assumption]) -> str:
    """Load a text, without the lines that the program refuses. Return the loaded text. Raises Failure."""
    path = _program(program, program.partition("-")[0])
    argv = [path, "restore", "-exist"] if program == "ipset" else [path]
    lines = text.splitlines()
    for _try in range(MOST_BAD_LINES):
        completed = run(argv, _closed(program, lines))
        if not completed.rc:
            return "\n".join([*lines, ""])
        errors = _errors(completed.stderr)
        bad = _bad_line(lambda part: bool(run(argv, _closed(program, part)).rc), lines, "\n".join(errors))
        # The first line may be the program's name and version alone.
        message = next((line for line in errors if not line.endswith(":")), str(completed.rc))
        if bad is None:
            raise Failure(f"{program} does not load the rules: {message[:300]}. Leave out what it names")
        concerns = [concern for _line, concern in foreign_tables.with_chains(FAMILIES.get(program, ""), lines)]
        refused, chains = lines.pop(bad), concerns.pop(bad)
        extension = next((name for name in _LACKING.findall(completed.stderr) if _has(refused, name)), "")
        if not extension:
            notes.append(gap(f"{program} refused a line, which is not in the twin: {refused} ({message[:120]}).", *chains))
            continue
        # A rule of each Service may have it.
        permitted = [line for line in lines if not _has(line, extension)]
        count = len(lines) - len(permitted) + 1
        sentence = f"{program} refused {count} lines, which are not in the twin: this kernel lacks {extension}."
        chains = chains.union(*(concern for line, concern in zip(lines, concerns) if _has(line, extension)))
        notes.append(gap(f"{sentence} The first is: {refused}.", *chains))
        lines = permitted
    raise Failure(f"{program} refused more than {MOST_BAD_LINES} lines. Is the text complete?")


def _has(line: str, extension: str) -> bool:
    """Return whether a rule has a match or a target, and not only a text with its name."""
    words = rule_words.split(line) if extension in line else []
    return any(option in ("-m", "-j") and name == extension for option, name in zip(words, words[1:]))


def _closed(program: str, lines: t.Sequence[str]) -> str:
    """Return the text of some lines, which may end in the middle of a table."""
    is_open = program.startswith("ip") and program != "ipset" and lines[-1:] != ["COMMIT"]
    return "\n".join([*lines, *(["COMMIT"] if is_open else []), ""])


def _bad_line(fails: t.Callable[[t.Sequence[str]], bool], lines: t.Sequence[str], message: str) -> int | None:
    """Return the index of the first refused line: the line that the program names, or the last of the shortest failing part."""
    match = _BAD_LINE.search(message)
    if match and 0 < int(match[1]) <= len(lines) and lines[int(match[1]) - 1] != "COMMIT":
        return int(match[1]) - 1
    bad = _first_bad(fails, lines) if lines else 0
    return bad if lines and not lines[bad].startswith(("*", "COMMIT")) else None


def _first_bad(fails: t.Callable[[t.Sequence[Part]], bool], parts: t.Sequence[Part]) -> int:
    """Return the index of the part that is the last of the shortest failing beginning."""
    good, bad = 0, len(parts)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(parts[:middle]) else (middle, bad)
    return bad - 1


def _differences(texts: t.Mapping[str, str], objects: t.Sequence[Entry], drawn: Blueprint) -> t.Iterator[Assumption]:
    """Yield the tables that the kernel has otherwise than they were loaded. What was loaded as text has no counts to compare."""
    if not (objects or texts):
        return
    as_text = {f"{table.family} {table.name}" for table in nft_text.tables(drawn.ruleset_text)}  # in part, if a world adds chains
    tables = [
        {"family": FAMILIES[program], "table": name, "save": text, "backend": "nft"}
        for program, restored in texts.items()
        if program in FAMILIES
        for name, text in _TABLE_OF_SAVE.findall(restored)
    ]
    sizes = netfilter_backend.kernel_sizes(nft_json.sizes(objects))
    chains = (chain for chain in netfilter_backend.kernel_chains() if not chain.table.endswith(TOKEN))
    for place, sentence in inventory.differences(chains, sizes, tables, (), objects):
        if place in as_text:
            continue
        family = place.partition(" ")[0]
        concerns = [Concern(OF_FAMILY, lacking.FAMILIES[family])] if family in lacking.FAMILIES else []
        yield gap(f"Table {place} is another one in the twin. {sentence}", *concerns)


def _load_rulesets(run: process.Runner, drawn: Blueprint, notes: list[Assumption]) -> list[Entry]:
    """Load the rulesets of nft, without what nft refuses. Return the objects of JSON that were loaded. Raises Failure."""
    objects = _load_objects(run, drawn.ruleset, notes)
    lines, count = drawn.ruleset_text.splitlines(), 0
    while any(map(str.strip, lines)):
        refused = _refused_by_nft(run, "\n".join([*lines, ""]))
        if not refused:
            break
        place, said = refused
        count += 1
        if place is None or count > MOST_BAD_LINES:
            raise Failure(f"nft does not load the ruleset of the snapshot: {said[:300]}")
        reason = (said.partition("Error: ")[2].splitlines() or [said])[0]
        if {"{", "}"} & {*re.sub(r"\{[^{}]*\}", "", lines[place])}:  # without it, the blocks around it would not fit
            first, last = _table_around(lines, place)
            left_out, lines = f"a table: {lines[first].strip(' {')}", [*lines[:first], *lines[last + 1 :]]
        else:
            left_out = f"a line: {lines.pop(place).strip()}"
        notes.append(gap(f"nft refused {left_out} ({reason}). The twin lacks it."))
    return objects


def _load_objects(run: process.Runner, objects: t.Sequence[Entry], notes: list[Assumption]) -> list[Entry]:
    """Load objects of nft's JSON, without those that nft refuses; without the tables of these if they are many.

    Return those that were loaded.
    """
    nft = [_program(*NFT), "-j"]

    def refusal(part: t.Sequence[Entry], *options: str) -> str:
        completed = run([*nft, *options, "-f", "-"], json.dumps({"nftables": part})) if part else None
        return (completed.stderr.strip() or str(completed.rc)) if completed and completed.rc else ""

    several, remaining = nft_objects.of_several_links(objects)
    for text in several:
        refused = _refused_by_nft(run, text)
        notes += [gap(f"nft refused a chain: {text.splitlines()[-1]} ({refused[1][:120]}).")] if refused else []
    count = 0
    while error := refusal(remaining):
        bad = remaining[_first_bad(lambda part: bool(refusal(part, "--check")), remaining)]
        count += 1
        is_table = count > MOST_BAD_OBJECTS
        remaining = [entry for entry in remaining if entry is not bad and not nft_json.is_within(entry, bad, is_table)]
        reason = (error.rpartition("Error: ")[2].splitlines() or [error])[0]
        left_out = f"{'the table of ' if is_table else ''}{str(dict(bad))[:200]}"
        notes.append(gap(f"nft refused an object. The twin lacks {left_out} ({reason[:120]})."))
    return [*several.values(), *remaining]


def _table_around(lines: t.Sequence[str], place: int) -> tuple[int, int]:
    """Return the places of the first and the last line of the table in which a line is, or that begins behind it."""
    starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("table ")]
    first = max((number for number in starts if number <= place), default=place)
    return first, min((number for number in starts if number > place), default=len(lines)) - 1


def _refused_by_nft(run: process.Runner, text: str) -> tuple[int | None, str] | None:
    """Return the place of the line that nft refuses, None if nft does not say, and nft's message; None if nft loaded the text."""
    completed = run([_program(*NFT), "-f", "-"], text)
    if not completed.rc:
        return None
    match = re.search(r":(\d+):\d+(?:-\d+)?: Error", completed.stderr)
    place = int(match[1]) - 1 if match else None
    return (place if place is not None and place < len(text.splitlines()) else None), completed.stderr.strip()


def _nft(run: process.Runner, text: str, *options: str) -> str:
    """Return what nft prints. Raises Failure."""
    completed = run([_program(*NFT), *options, "-f", "-"], text)
    if completed.rc:
        raise Failure(f"nft does not load the ruleset of the snapshot: {completed.stderr.strip()[:300]}")
    return completed.stdout
