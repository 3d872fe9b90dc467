# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing that a node or a report contributes to a text for people changes the terminal; data keep each byte."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable, in_one_line, printable

SIGNS = {
    "\x1b[2J": "\\x1b[2J",
    "\x07\x00\x7f": "\\x07\\x00\\x7f",
    "\x9b31m": "\\x9b31m",
    "a\rb": "a\\rb",
    "\u202etxt\u2066": "\\u202etxt\\u2066",
    "\u2028\ufeff": "\\u2028\\ufeff",
    "\udc80": "\\udc80",
    "\U000e0001": "\\U000e0001",
}


@pytest.mark.parametrize("given", SIGNS)
def test_control_characters_and_direction_marks_are_shown_as_python_escapes_them(given: str) -> None:
    assert printable(given) == in_one_line(given) == SIGNS[given]
    assert printable(printable(given)) == printable(given)


def test_an_error_shows_long_parts_in_part() -> None:
    text = str(Invalid("a" * 10**6, "b" * 10**6, f"one of {'c' * 10**6}"))
    assert len(text) < 6100 and text.endswith("b... was given")


def test_letters_of_all_languages_line_breaks_and_tabs_stay() -> None:
    text = "größe 网络 …\n\tمرحبا"
    assert printable(text) == text
    assert in_one_line(text) == text.replace("\n", "\\n").replace("\t", "\\t")


def test_texts_inside_of_values_are_printable_and_other_values_stay() -> None:
    given = {"eth\x1b0": [("\x07", 1), None, True, 2.5, {"a": "\u202e"}]}
    assert all_printable(given) == {"eth\\x1b0": [["\\x07", 1], None, True, 2.5, {"a": "\\u202e"}]}


def printed(capsys: pytest.CaptureFixture[str], error: str = "", **arguments: object) -> str:
    """What a module prints that has observed hostile texts and, with ``error``, fails with one."""
    testing = pytest.importorskip("ansible.module_utils.testing")
    from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module

    with testing.patch_module_args({"name": "\x9b2J", **arguments}), pytest.raises(SystemExit):
        module = Module({"name": Option("str")})
        with module.reporting(data=("snapshot",)) as result:
            result.update(reason="\u202e", notes=["\x9b"], diff=[{"before": "a\n\tb\x07"}], snapshot={"text": "\x9b"})
            if error:
                raise Failure(error)
    return capsys.readouterr().out


def test_a_result_is_printable_except_the_data_of_programs(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(printed(capsys))
    assert (result["reason"], result["notes"], result["diff"]) == ("\\u202e", ["\\x9b"], [{"before": "a\n\tb\\x07"}])
    assert result["snapshot"] == {"text": "\x9b"}


def test_an_error_and_the_arguments_that_ansible_shows_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "nft: Error: syntax error\n\x1b]0;gone\x07", _ansible_verbosity=3, _ansible_inject_invocation=True)
    result = json.loads(text)
    assert result["msg"].endswith("nft: Error: syntax error\n\\x1b]0;gone\\x07")
    assert result["invocation"]["module_args"]["name"] == "\\x9b2J"


def test_a_warning_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    basic = pytest.importorskip("ansible.module_utils.basic")
    from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module

    warnings: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, warning: warnings.append(warning))
    Module.warn(object.__new__(Module), "eth\x1b[2J")
    assert warnings == ["eth\\x1b[2J"]
