# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``iptables -L`` prints, as rules for iptables-restore.

Each extension of iptables prints its options in its own way. The forms are those of iptables 1.4 to 1.8, with -n and without. A
rule is read as a whole or not at all.
"""

from __future__ import annotations

import re
import typing as t

_HOST = r"ip(?:-\d{1,3}){4}(?:\.[\w.-]+)?"  # what AWS calls an address, which is shown without -n
_ADDRESS = rf"!?(?:anywhere|default|(?:{_HOST}|[\da-f]*[.:][\da-f.:]*)(?:/[\da-f.:]+)?)"
_PLACE = r"!?\*|!?[^\s/]+"
_LINE = re.compile(
    r"\s*(?:\d+ +)?(?:\d+[KMGTPE]? +\d+[KMGTPE]? +)?(?:(?P<target>(?!\d+ )\S+) +)?"
    rf"(?P<protocol>!?[a-z\d]+(?:-[a-z\d]+)*) *(?:(?P<fragment>--|-f|!f) +)?(?<= )(?:(?P<i>{_PLACE}) +(?P<o>{_PLACE}) +)?"
    rf"(?P<s>{_ADDRESS}) +(?P<d>{_ADDRESS}) *(?P<extra>.*)"
)
_ANYTHING = ("*", "any", "anywhere", "0.0.0.0/0", "::/0", "default")
_FRAGMENTS = {"-f": "-f", "!f": "! -f"}
_PROTOCOLS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "ipv6-icmp", "132": "sctp"}
_FLAGS = {0x01: "FIN", 0x02: "SYN", 0x04: "RST", 0x08: "PSH", 0x10: "ACK", 0x20: "URG"}  # of TCP

_COMMENT, _GOTO = re.compile(r"/\*.*?\*/"), re.compile(r"\[goto\]")
_PLAIN_COMMENT = re.compile(r'/\* ([^"\\*]+?) \*/')  # which needs no quotes within quotes


def _tcp_flags(match: re.Match[str]) -> str:
    """Return the names of the flags. With -n they are numbers."""
    numbers_or_names = [
        (",".join(name for bit, name in _FLAGS.items() if int(text, 16) & bit) or "NONE") if text.startswith("0x") else text
        for text in match.group(2, 3)
    ]
    return " ".join([match[1] or "", "--tcp-flags", *numbers_or_names])


def _addrtype(match: re.Match[str]) -> str:
    words = match[1].split()
    kinds = [_option(f"--{option}", value) for option, value in zip(words[::2], words[1::2])]
    return " ".join(["-m addrtype", *kinds, f"--limit-iface-{match[2]}" if match[2] else ""])


def _rpfilter(match: re.Match[str]) -> str:
    return " ".join(["-m rpfilter", *(f"--{word}" for word in match[1].split())])


def _recent(match: re.Match[str]) -> str:
    verb = {"SET": "--set", "CHECK": "--rcheck", "UPDATE": "--update", "REMOVE": "--remove"}[match["verb"]]
    words = [f"--{option} {match[option]}" for option in ("seconds", "hitcount", "name", "mask") if match[option]]
    flags = [option for option, name in (("--reap", "reap"), ("--rttl", "ttl")) if match[name]]
    return " ".join(["-m recent", match["not"] or "", verb, *words, *flags, f"--r{match['side']}"])


def _hashlimit(match: re.Match[str]) -> str:
    """Return the options of hashlimit, with a made-up name, which iptables -L does not print."""
    rate = f"-m hashlimit --hashlimit-name listed --hashlimit-{match[1].replace(' ', '')} {match[2]} --hashlimit-burst {match[3]}"
    return f"{rate} --hashlimit-mode {match[4].replace('-', ',')}" if match[4] else rate


Meaning = t.Union[str, t.Callable[[re.Match[str]], str]]
Forms = tuple[tuple[str, Meaning], ...]

# What an extension prints, and the options that mean it. \N is a group; a group of "!" may be empty.
_MATCHES: Forms = (
    (r"(! )?((?:ctstate|ctstatus|ctproto|ctdir|ctexpire|ctorig\w+|ctrepl\w+)) (\S+)", r"-m conntrack \1 --\2 \3"),
    (r"(! )?state (\S+)", r"-m state \1 --state \2"),
    (r"multiport (sports|dports|ports) +(!)?(\S+)", r"-m multiport \2 --\1 \3"),
    (r"(tcp|udp|udplite|sctp|dccp)", r"-m \1"),
    (r"spts?:(!)?(\S+)", r"\1 --sport \2"),
    (r"dpts?:(!)?(\S+)", r"\1 --dport \2"),
    (r"flags:(!)?([^\s/]+)/(\S+)", _tcp_flags),
    (r"option=(!)?(\d+)", r"\1 --tcp-option \2"),
    (r"icmp (!)?type (\d+)", r"-m icmp \1 --icmp-type \2"),
    (r"(!)?icmptype (\d+) code (\d+)", r"-m icmp \1 --icmp-type \2/\3"),
    (r"(!)?icmptype (\d+)", r"-m icmp \1 --icmp-type \2"),
    (r"icmp (!)?([a-zA-Z][\w-]*)", r"-m icmp \1 --icmp-type \2"),
    (r"(!)?ipv6-icmptype (\d+) code (\d+)", r"-m icmp6 \1 --icmpv6-type \2/\3"),
    (r"(!)?ipv6-icmptype (\d+)", r"-m icmp6 \1 --icmpv6-type \2"),
    (r"ipv6-icmp (!)?([a-zA-Z][\w-]*)", r"-m icmp6 \1 --icmpv6-type \2"),
    (r"(mark|connmark) match +(! )?(\S+)", r"-m \1 \2 --mark \3"),
    (r"(! )?match-set (\S+) (\S+)", r"-m set \1 --match-set \2 \3"),
    (r"ADDRTYPE match((?: (?:src-type|dst-type) !?\S+)*)(?: limit-(in|out))?", _addrtype),
    (r"rpfilter((?: (?:loose|validmark|accept-local|invert))*)", _rpfilter),
    (r"limit: avg (\S+) burst (\d+)", r"-m limit --limit \1 --limit-burst \2"),
    (r"limit: (up to|above) (\S+) burst (\d+)(?: mode (\S+))?", _hashlimit),
    (r"statistic mode random (! )?probability (\S+)", r"-m statistic --mode random \1 --probability \2"),
    (r"statistic mode nth (! )?every (\d+) packet (\d+)", r"-m statistic --mode nth \1 --every \2 --packet \3"),
    (r"statistic mode nth (! )?every (\d+)", r"-m statistic --mode nth \1 --every \2 --packet 0"),
    (
        r"(?P<not>! )?recent: (?P<verb>SET|CHECK|UPDATE|REMOVE)(?: seconds: (?P<seconds>\d+))?(?P<reap> reap)?"
        r"(?: hit_count: (?P<hitcount>\d+))?(?P<ttl> TTL-Match)? name: (?P<name>\S+) side: (?P<side>source|dest)"
        r"(?: mask: (?P<mask>\S+))?",
        _recent,
    ),
    (r"(! )?owner UID match (\S+)", r"-m owner \1 --uid-owner \2"),
    (r"(! )?owner GID match (\S+)", r"-m owner \1 --gid-owner \2"),
    (r"source IP range (! )?(\S+)", r"-m iprange \1 --src-range \2"),
    (r"destination IP range (! )?(\S+)", r"-m iprange \1 --dst-range \2"),
    (r"PKTTYPE (!)?= (\S+)", r"-m pkttype \1 --pkt-type \2"),
    (r"length (!)?([\d:]+)", r"-m length \1 --length \2"),
    *(
        (f"{name.upper()} match {name.upper()} {sign} (\\d+)", f"-m {name} {option} \\1")
        for name in ("ttl", "hl")
        for sign, option in (("==", f"--{name}-eq"), ("!=", f"! --{name}-eq"), ("<", f"--{name}-lt"), (">", f"--{name}-gt"))
    ),
    (r"MAC ?(! ?)?((?:[\da-fA-F]{2}:){5}[\da-fA-F]{2})", r"-m mac \1 --mac-source \2"),
    (r"PHYSDEV match((?: (?:! )?--physdev-(?:is-bridged|is-in|is-out|in \S+|out \S+))+)", r"-m physdev \1"),
    (r"socket((?: --(?:transparent|nowildcard|restore-skmark))*)", r"-m socket \1"),
    (r"DSCP match (!)?(0x\w+)", r"-m dscp \1 --dscp \2"),
    (r"tos match *(!)?(0x\w+/0x\w+)", r"-m tos \1 --tos \2"),
    (r'u32 (! )?("[^"]*")', r"-m u32 \1 --u32 \2"),
    (r"cpu (! ?)?(\d+)", r"-m cpu \1 --cpu \2"),
    (r"policy match dir (in|out) pol (ipsec|none)", r"-m policy --dir \1 --pol \2"),
    (r"esp spis?:(!)?(\S+)", r"-m esp \1 --espspi \2"),
)  # fmt: skip
_RANDOM: Forms = ((r"random", "--random"),)
_FULLY: Forms = (*_RANDOM, (r"random-fully", "--random-fully"))
_VERBS: Forms = tuple((rf"@ {verb} (\S+)", rf"--{verb}-mark \1") for verb in ("set", "or", "and", "xor"))
_MARKS: Forms = ((r"@ xset (\S+)", r"--set-xmark \1"), *_VERBS)
_STEPS = (("set to", "set"), ("increment by", "inc"), ("decrement by", "dec"))
# The same for targets. @ is the target's name.
_TARGETS: dict[str, Forms] = {
    "MARK": _MARKS,
    "CONNMARK": (
        *_MARKS,
        (r"@ (save|restore) nfmask (\S+) ctmask ~?(\S+)", r"--\1-mark --nfmask \2 --ctmask \3"),
        (r"@ (save|restore) mask (\S+)", r"--\1-mark --mask \2"),
        (r"@ (save|restore)", r"--\1-mark"),
    ),
    "REJECT": ((r"reject-with (\S+)", r"--reject-with \1"),),
    "SNAT": ((r"to:(\S+)", r"--to-source \1"), *_FULLY, (r"persistent", "--persistent")),
    "DNAT": ((r"to:(\S+)", r"--to-destination \1"), *_FULLY, (r"persistent", "--persistent")),
    "NETMAP": ((r"(?:to:)?(\S+)", r"--to \1"),),
    "MASQUERADE": ((r"masq ports: (\S+)", r"--to-ports \1"), *_FULLY),
    "REDIRECT": ((r"redir ports (\S+)", r"--to-ports \1"), *_RANDOM),
    "TCPMSS": ((r"@ clamp to PMTU", "--clamp-mss-to-pmtu"), (r"@ set (\d+)", r"--set-mss \1")),
    "TPROXY": ((r"@ redirect (\S+):(\d+) mark (\S+)", r"--on-port \2 --on-ip \1 --tproxy-mark \3"),),
    "CT": ((r"(?:@ notrack|NOTRACK)", "--notrack"), (r"@ zone (\S+)", r"--zone \1")),
    "DSCP": ((r"@ set (0x\w+)", r"--set-dscp \1"),),
    "TOS": ((r"@ set (0x\w+/0x\w+)", r"--set-tos \1"),),
    "TTL": tuple((rf"@ {words} (\d+)", rf"--ttl-{option} \1") for words, option in _STEPS),
    "HL": tuple((rf"@ {words} (\d+)", rf"--hl-{option} \1") for words, option in _STEPS),
    "CHECKSUM": ((r"@ fill", "--checksum-fill"),),
    "SET": ((r"(add|del)-set (\S+) (\S+)", r"--\1-set \2 \3"),),
    "NFQUEUE": (
        (r"@ num (\d+)", r"--queue-num \1"),
        (r"@ balance (\d+:\d+)", r"--queue-balance \1"),
        (r"(?:@ )?bypass", "--queue-bypass"),
        (r"cpu-fanout", "--queue-cpu-fanout"),
    ),
    "TEE": ((r"@ gw:(\S+)", r"--gateway \1"),),
    # The flags and levels of these decide nothing.
    "LOG": ((r'@ (?:.* )?prefix (".*")', r"--log-prefix \1"), (r"@(?: .*)?", "")),
    "NFLOG": ((r"nflog-.*", ""),),
}  # fmt: skip


def _compiled(forms: Forms, target: str = "") -> list[tuple[re.Pattern[str], Meaning]]:
    """Return the forms as patterns. Each must be followed by a blank or by the end of the line."""
    return [(re.compile(rf"(?:{form.replace('@', target)})(?= |$)"), meaning) for form, meaning in forms]


_OF_TARGET = {target: _compiled(forms, target) for target, forms in _TARGETS.items()}
_OF_MATCHES = _compiled(_MATCHES)


def rule(line: str) -> str | None:
    """Return the rule of a line, as after ``-A CHAIN``; None if a part of it is not known, or an address is a host's name."""
    columns = _LINE.fullmatch(line.rstrip())
    if not columns:
        return None
    target, protocol = columns["target"] or "", columns["protocol"].lstrip("!")
    ends = [_option(f"-{name}", _numeric(columns[name])) for name in "sdio" if columns[name] and columns[name] not in _ANYTHING]
    if protocol not in ("all", "0"):
        ends.append(_option("-p", columns["protocol"].replace(protocol, _PROTOCOLS.get(protocol, protocol))))
    if columns["fragment"] in _FRAGMENTS:
        ends.append(_FRAGMENTS[columns["fragment"]])
    verb = "-g" if _GOTO.search(columns["extra"]) else "-j"
    extra = " ".join(_GOTO.sub("", _COMMENT.sub("", columns["extra"])).split())
    of_matches = [f"-m comment --comment {_quoted(comment)}" for comment in _PLAIN_COMMENT.findall(columns["extra"])]
    of_target: list[str] = []
    while extra:
        for forms, options in ((_OF_TARGET.get(target, []), of_target), (_OF_MATCHES, of_matches)):
            known = next(((match, meaning) for form, meaning in forms if (match := form.match(extra))), None)
            if known:
                match, meaning = known
                options.append(_expanded(match, meaning) if isinstance(meaning, str) else meaning(match))
                extra = extra[match.end() :].lstrip()
                break
        else:
            return None
    goal = [f"{verb} {target}"] if target else []
    return " ".join(" ".join([*ends, *of_matches, *goal, *of_target]).split())


def _quoted(comment: str) -> str:
    return comment if re.fullmatch(r"[\w-]+", comment, re.ASCII) else f'"{comment}"'


def _numeric(place: str) -> str:
    """Return an address without the name of its host; all else as it is."""
    host = re.match(_HOST, place.lstrip("!"))
    return place.replace(host[0], ".".join(re.findall(r"\d+", host[0])[:4])) if host else place


def _option(name: str, value: str) -> str:
    return f"! {name} {value[1:]}" if value.startswith("!") else f"{name} {value}"


def _expanded(match: re.Match[str], options: str) -> str:
    return re.sub(r"\\(\d)", lambda group: match[int(group[1])] or "", options)
