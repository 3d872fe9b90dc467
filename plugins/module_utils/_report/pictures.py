# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The ways of packets on the page of audits."""

from __future__ import annotations

from .._answer import drawing
from .._answer.markup import Markup, element
from .._trace.answer import Way

MOST = 1_000_000  # characters of the pictures of a page


class Pictures:
    """The ways of packets as pictures, each drawn once."""

    def __init__(self) -> None:
        self._room = MOST
        self._places = dict[str, tuple[str, str]]()  # the ids and the titles of their findings, by the pictures

    def drawn(self, way: Way, title: str) -> Markup:
        """Return the picture of a way, or a link to it if it was drawn before; nothing if the pictures fill the page.

        title: of the finding.
        """
        picture = drawing.ways(way, "")
        if picture in self._places:
            place, first = self._places[picture]
            return element("p", element("a", f"The same way as that of {first}", attributes={"href": f"#{place}"}))
        if len(picture) > self._room:
            return Markup()
        self._room -= len(picture)
        place = f"way{len(self._places)}"
        self._places[picture] = place, title
        return element("div", picture, attributes={"id": place})
