# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes in a twin: calls of this collection's modules by their own code, and commands of other tools."""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import shutil
import types
import typing as t
from pathlib import Path

from .._core import converge
from .._core.errors import DatapathError, Failure, Invalid, MissingLibrary, Refusal
from .._core.parts import NO_EFFECTS, Effects, Parts, Request, requested
from .._core.plan import Plane
from .._interfaces import interfaces_backend
from .._platform import library, process, sysctl_files
from .._twin import bounds, isolation_backend
from .._twin.wall_backend import Root

if t.TYPE_CHECKING:
    from .._commands.command import Command
    from .._parts.assembly import Transaction
    from .._twin.translating_programs import StandIn

PROBE_SNAT, LIVE_PROGRAMS = "nftables_probe_snat", "LivePrograms"  # a module, and what it has that no twin can have
MODULES = (
    "azure_vnet_bridge", "ebtables_cleanup", "link_addresses", "nftables_connmark", PROBE_SNAT, "policy_routes", "rp_filter",
)  # fmt: skip
# Folders in which modules keep records and backups. In a twin they are empty, and what modules write there ends with the twin.
WRITABLE = ("/run", "/etc/cni/net.d", "/var/lib/kubenode")
BACKUP = "/var/lib/kubenode/twin"
# What the twin of the node itself has of the node, besides: copies of files, with the reason. See also prepared().
COPIED = {
    "/etc/cni/net.d/*": "the configured CNI decides what is a leftover",
    "/etc/kubenode/*": "rp_filter and policy_routes compare the running state with what is loaded at boot",
    "/etc/machine-id": "a backup names the node that it is of",
    "/run/*": "azure-vnet's state files are evidence for its leftovers",
    "/run/kubenode/*": "modules restore what they have recorded there",
    "/run/systemd/resolve/*": "azure_vnet_bridge restores a bridge's name servers",
    "/run/systemd/resolve/netif/*": "azure_vnet_bridge restores a bridge's name servers",
    "/var/lib/kubenode/*": "modules restore what they have recorded there",
    **{
        path: "rp_filter names the file that sets a filter at boot"
        for path in (*(f"{folder}/*" for folder in sysctl_files.FOLDERS), sysctl_files.LAST_OF_PROCPS)
        if not path.startswith(isolation_backend.LIBRARIES)  # these folders are visible
    },
}
MOST_COPIED = 32 << 20  # bytes
ADDRESSES = "link_addresses"
# Modules and programs that translate no packet, and add no address but those of addresses(). Which rules a packet can reach does
# not depend on its mark, its link or its route.
_NOT_TRANSLATING = ("rp_filter", "policy_routes", "nftables_connmark", ADDRESSES, "bridge", "ip")
PROFILE = "profile"
# A twin must not load BPF programs, and a table translates the same packets (tests/integration/_probe_snat/test_programs.py).
STAND_IN = "The twin has a table in the place of BPF programs that translate probes."


class Call(t.NamedTuple):
    """A call of a module of this collection. name: without that of the collection."""

    name: str
    options: dict[str, t.Any]


Change = t.Union[Call, "Command"]


@contextlib.contextmanager
def prepared(changes: t.Iterable[Change], is_own: bool) -> t.Iterator[Root]:
    """Yield the root of a twin in which the changes can be made. is_own: whether it is the twin of the node on which this runs.

    The code of the modules is imported before the twin is walled in, and so is the library that encodes messages to the kernel.
    The node's own twin cannot enter the namespaces of pods, so the interfaces there are read before.
    """
    calls = [change for change in changes if isinstance(change, Call)]
    if not calls:
        yield isolation_backend.root()
        return
    for call in calls:
        importlib.import_module(f".._parts.{call.name}", __package__)
    with contextlib.suppress(MissingLibrary):  # apply() raises it if a call needs the library
        library.load(library.PYROUTE2)
    with interfaces_backend.remembering() if is_own else contextlib.nullcontext():
        yield isolation_backend.root(WRITABLE, _copied(calls) if is_own else {})


def _copied(calls: t.Iterable[Call]) -> dict[str, bytes]:
    """Return the contents of COPIED, and of the backups that the calls name. Raises Refusal."""
    backups = [str(call.options.get("backup") or f"{WRITABLE[-1]}/backup") for call in calls]
    paths = [path for pattern in COPIED for path in glob.glob(pattern)]
    paths += [path for folder in dict.fromkeys(backups) for path in glob.glob(f"{glob.escape(folder)}/**", recursive=True)]
    contents: dict[str, bytes] = {}
    for path in filter(os.path.isfile, dict.fromkeys(paths)):
        with contextlib.suppress(OSError):
            contents[path] = Path(path).read_bytes()
        if sum(map(len, contents.values())) > MOST_COPIED:
            raise Refusal(
                f"the files that modules compare with are larger than {MOST_COPIED >> 20} MiB together, at {path}. The twin"
                " has no place for more. Move what is not theirs to another folder"
            )
    return contents


def read(entries: t.Any, texts: t.Sequence[object] = ()) -> tuple[Change, ...]:
    """Return the entries of the option ``changes``, and behind them those of ``commands``. Raises Invalid."""
    return (*_calls(entries), *_commands(texts))


def _calls(entries: t.Any) -> t.Iterator[Call]:
    for number, call in enumerate(entries or ()):
        option = f"changes[{number}]"
        if call == {}:  # an entry that the keyword omit has emptied
            continue
        if not isinstance(call, dict) or len(call) != 1:
            raise Invalid(option, call, "a dictionary with the name of a module as its only key, and its options as the value")
        ((name, options),) = call.items()
        short = str(name).rpartition(".")[2]
        if short not in (*MODULES, PROFILE):
            raise Invalid(option, name, f"a call of one of {', '.join((*MODULES, PROFILE))}")
        if not isinstance(options or {}, dict):
            raise Invalid(f"{option}.{name}", options, "the module's options, a dictionary")
        yield Call(short, dict(options or {}))


def without_profiles(changes: t.Iterable[Change], request: Request) -> tuple[Change, ...]:
    """Return the changes, with each profile replaced by the calls of its modules on this node. Raises DatapathError.

    Modules that do not change the packet path of the running kernel are left out, and so are all modules of an image.
    """
    return tuple(each for change in changes for each in _on_node(change, request))


def _on_node(change: Change, request: Request) -> t.Sequence[Change]:
    if not isinstance(change, Call) or change.name != PROFILE:
        return [change]
    transaction = _transaction(change.options, request)
    steps = () if transaction.verdict.is_image else transaction.steps
    return [Call(*step) for step in steps if step[0] in MODULES]


def _transaction(options: t.Mapping[str, t.Any], request: Request) -> Transaction:
    """Return the transaction of a profile's call on this node. Raises DatapathError."""
    from .._parts import profile  # most traces have no profile

    return profile.transaction(requested(profile, dict(options), request))


def is_role(change: Change) -> bool:
    """Return whether a change applies the profile of a role, and does not undo it."""
    if not isinstance(change, Call) or change.name != PROFILE or not change.options.get("name"):
        return False
    return (change.options.get("options") or {}).get("state") != "absent"


def refuse_profiles(changes: t.Iterable[Change]) -> None:
    """Raise Invalid for a profile: it would observe this machine, which is not the node of the snapshot."""
    expected = "left out if snapshot or dump is given: a profile reads the node itself"
    for change in changes:
        if isinstance(change, Call) and change.name == PROFILE:
            raise Invalid(f"changes.{PROFILE}", change.options, expected)


def _commands(texts: t.Sequence[object]) -> list[Command]:
    """Return the entries of the option ``commands``. Raises Invalid for one that is not permitted, and for too many."""
    if not texts:
        return []
    from .._commands import command  # most traces have no commands

    bounds.at_most("commands", len(texts), bounds.MOST_COMMANDS, "entries")
    bounds.at_most("commands", sum(len(str(text)) for text in texts), bounds.MOST_COMMAND_BYTES, "bytes")
    return [command.read(f"commands[{number}]", text) for number, text in enumerate(texts)]


def may_lead_elsewhere(changes: t.Iterable[Change]) -> bool:
    """Return whether changes may read or name rules, or lead packets to rules that they do not reach without them."""
    return not all(map(_keeps_to_rules, changes))


def addresses(changes: t.Collection[Change]) -> list[str]:
    """Return the addresses that changes may add, without the lengths of their networks, among other words of commands."""
    calls = (change for change in changes if isinstance(change, Call) and change.name == ADDRESSES)
    words = [str(entry.get("address")) for call in calls for entry in call.options.get("addresses") or ()]
    words += [word for command in changes if getattr(command, "name", "") == "ip" for word in getattr(command, "words", ())]
    return [word.partition("/")[0] for word in words]


def words(changes: t.Iterable[Change]) -> t.Iterator[str]:
    """Yield all words of the options of calls, without the lengths of networks, such as the addresses in a policy."""
    waiting: list[t.Any] = [change.options for change in changes if isinstance(change, Call)]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else ()
        yield from [part.partition("/")[0]] if isinstance(part, str) else ()


def may_name_rules(changes: t.Iterable[Change]) -> bool:
    """Return whether changes may remove a policy rule, or compare all of them with those of an option."""
    return any(isinstance(change, Call) or "rule" in getattr(change, "words", ()) for change in changes)


def _keeps_to_rules(change: Change) -> bool:
    """Return whether a change names no rule and adds no unknown address, such as a setting, a route, or a policy."""
    words = getattr(change, "words", ())
    is_setting_or_policy = not isinstance(change, Call) and (not words or words[0] == "-P")
    return is_setting_or_policy or getattr(change, "name", "") in _NOT_TRANSLATING


def commands(changes: t.Iterable[Change]) -> list[Command]:
    return [change for change in changes if not isinstance(change, Call)]


def check_sizes(changes: t.Iterable[Change], sizes: bounds.Sets) -> None:
    """Raise Invalid for a command that makes a set larger than a bound. sizes: of the sets that the twin has already."""
    for number, line in enumerate(commands(changes)):
        from .._commands import command  # loaded by read() already, so that the wall does not hide it

        command.count(f"commands[{number}]", line, sizes)


def apply(
    changes: t.Iterable[Change], run: process.Runner, warn: t.Callable[[str], None], stand_ins: t.Mapping[str, StandIn]
) -> None:
    """Make the changes in their order. stand_ins: of BPF programs, by the names of their tables. Raises DatapathError that names
    the call or the command.
    """
    effects = NO_EFFECTS
    for change in changes:
        if isinstance(change, Call) and change.name == PROBE_SNAT and stand_ins:
            _remove_programs(change, stand_ins, run)
        if isinstance(change, Call):
            effects = effects.then(_called(change, Request({}, {}, run, warn, effects)))
        else:
            _perform(change, run)


def _remove_programs(call: Call, stand_ins: t.Mapping[str, StandIn], run: process.Runner) -> None:
    """Remove the tables that stand for the programs which the module detaches, or replaces by others."""
    from .._parts import nftables_probe_snat as part
    from .._probe_snat import programs_backend

    table = str(call.options.get("table") or part.OPTIONS["table"].default)
    names = {programs_backend.name(table, direction) for direction in programs_backend.DIRECTIONS}
    places = [f"table ip6 {name}" for name, each in stand_ins.items() if each.program.name in names]
    run([process.find("nft") or "nft", "-f", "-"], "".join(f"add {place}\ndelete {place}\n" for place in places))


def _called(call: Call, by: Request) -> Effects:
    try:
        return _effects(call, by)
    except Invalid as error:
        raise error.inside(f"changes.{call.name}") from None
    except MissingLibrary:
        raise
    except DatapathError as error:
        raise Failure(f"{call.name} failed in the twin: {error}") from error


def _effects(call: Call, by: Request) -> Effects:
    part: types.ModuleType = importlib.import_module(f".._parts.{call.name}", __package__)
    adjusted = dict(call.options)
    if "permanent" in part.OPTIONS:
        adjusted.update(immediate=True, permanent=False)
    if "backup" in part.OPTIONS:
        former = str(adjusted.get("backup") or part.OPTIONS["backup"].default)
        if not os.path.isdir(BACKUP):
            shutil.copytree(former, BACKUP) if os.path.isdir(former) else os.makedirs(BACKUP)
        adjusted["backup"] = BACKUP
    adjusted.pop("checkpoint", None)
    if call.name == PROBE_SNAT and adjusted.get("backend", "nftables") != "nftables":
        adjusted["backend"] = "nftables"  # whose table does what the BPF programs do, which no twin has
        if adjusted.get("state") != "absent":
            by.warn(STAND_IN)
    parts: Parts = part.parts(requested(part, adjusted, by, by.earlier))
    immediate = (resource for resource in parts.resources if resource.plane is Plane.IMMEDIATE)
    resources = [resource for resource in immediate if type(resource).__name__ != LIVE_PROGRAMS]
    converge.converge(
        resources,
        {Plane.IMMEDIATE},
        groundwork=parts.groundwork,
        permit=lambda outcome: library.require(outcome.operations()),
    )
    return parts.effects


def _perform(line: Command, run: process.Runner) -> None:
    from .._commands.command import Settings

    if isinstance(line, Settings):
        for path, value in line.values:
            try:
                with open(f"/proc/sys/{path}", "w") as file:
                    file.write(str(value))
            except OSError as error:
                raise Failure(f"`{line.shown}` failed in the twin at /proc/sys/{path}: {error.strerror}") from error
        return
    program = process.find(line.name)
    if program is None:
        raise Failure(f"{line.name} is not installed, so that the twin cannot run `{line.shown}`. Install it and run again")
    done = run([program, *line.words], None)
    if done.rc:
        raise Failure(f"`{line.shown}` failed in the twin: {done.stderr.strip() or done.rc}")
