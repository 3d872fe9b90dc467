# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Sphinx builds the site of `make docs`; tests/toolchain.py collects its sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

from ansible_collections.kubenode.datapath.plugins.module_utils._core.version import COLLECTION

REPOSITORY = "https://github.com/kubenode/datapath/blob/main"
PICTURES = "https://raw.githubusercontent.com/kubenode/datapath/main/"  # of the README, which Galaxy shows without other files
ANSIBLE = "https://docs.ansible.com/ansible/latest"
# Pages of ansible-core's documentation that antsibull-docs refers to by label. The build needs no network for them.
LABELS = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "callback_plugins": "plugins/callback.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}

project = "kubenode.datapath"
copyright = "kubenode.datapath contributors"
release = COLLECTION
html_title = f"kubenode.datapath {release}"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
exclude_patterns = ["README.md"]  # index.md includes it
myst_heading_anchors = 3  # links to headings, as GitHub makes them
suppress_warnings = ["misc.highlighting_failure"]  # Pygments does not know all of HCL

html_theme = "furo"
html_theme_options = {"source_repository": REPOSITORY.partition("/blob/")[0], "top_of_page_buttons": []}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
antsibull_ext_color_scheme = "none"  # site.css has the colours, light and dark
html_show_sphinx = False
html_copy_source = False
html_use_index = False
highlight_language = "text"

MODULE = re.compile(r"ansible_collections\.ansible\.builtin\.(\w+_module)")  # the label of a module of ansible-core

# The table of contents that antsibull-docs puts on each page. The theme has one at the side.
CONTENTS = re.compile(r"^\.\. contents::\n(?: +:.*\n)*", re.MULTILINE)


def adapt_links(text: str) -> str:
    """The links of a page as they hold on the site.

    index.md stands for the README of the repository. A file that is no page of the site is linked in the repository.
    """
    text = re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", text)
    return re.sub(r"\]\((?:\.\./)*(LICENSE|changelogs/|meta/runtime\.yml)\)", rf"]({REPOSITORY}/\1)", text)


def adapt_page(_app: Any, _docname: str, content: list[str]) -> None:
    content[0] = adapt_links(CONTENTS.sub("", content[0]))


def adapt_included(_app: Any, path: Path, _parent: str, content: list[str]) -> None:
    """Adapt a file that index.md includes: its links begin in its own folder. The site shows its own pictures, and no badges."""
    text = re.sub(r"\]\((?!https:)", "](docs/", content[0]) if path.parent.name == "docs" else content[0]
    content[0] = re.sub(r"^\[!\[.*\n", "", adapt_links(text), flags=re.MULTILINE).replace(PICTURES, "")


def link_to_ansible(_app: Any, _env: Any, node: Any, text: nodes.Node) -> nodes.Node | None:
    """Resolve a label or an environment variable of ansible-core."""
    target = node["reftarget"]
    module = MODULE.fullmatch(target)
    page = f"collections/ansible/builtin/{module[1]}.html" if module else LABELS.get(target)
    if node["reftype"] == "envvar":
        page = f"{LABELS['ansible_configuration_settings']}#envvar-{target}"
    return nodes.reference("", "", text, refuri=f"{ANSIBLE}/{page}", internal=False) if page else None


def setup(app: Any) -> None:
    app.connect("source-read", adapt_page)
    app.connect("include-read", adapt_included)
    app.connect("missing-reference", link_to_ansible)
