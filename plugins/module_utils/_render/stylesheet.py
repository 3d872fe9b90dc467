# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The style of a page, light and dark. It is code, because only files of code are packed into the command."""

from __future__ import annotations

GOOD, BAD, OPEN = "good", "bad", "open"  # classes, of what arrives, what is lost, and what is not certain

CSS = """
:root {
  --page: #f4f6f9; --panel: #fff; --ink: #18202c; --dim: #5a6678; --edge: #d5dbe4; --code: #eef1f6;
  --good: #14693a; --good-back: #dcf3e5; --bad: #b3231b; --bad-back: #fde8e6; --open: #7a5200; --open-back: #fcefcf;
  --change: #2a4fb0; --change-back: #e4ebfd; --place: #e9edf4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10141b; --panel: #181e27; --ink: #e5e9ef; --dim: #98a4b5; --edge: #323c4a; --code: #222a35;
    --good: #7fdca3; --good-back: #143322; --bad: #ff9f96; --bad-back: #451916; --open: #f0c66d; --open-back: #3a2c0e;
    --change: #a9c1ff; --change-back: #1e2c4f; --place: #222a36;
  }
}
* { box-sizing: border-box; }
body { max-width: 76rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1, h2, h3, p, ul, dl, dd, pre { margin: 0; padding: 0; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h1::first-letter, h2::first-letter, h3::first-letter { text-transform: uppercase; }
h2 { margin: 2rem 0 .7rem; font-size: 1.15rem; }
h3 { font-size: 1rem; }
code, pre { font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { padding: .7rem .9rem; background: var(--code); border-radius: 8px; white-space: pre-wrap; }
ul { padding-left: 1.2rem; }
li + li { margin-top: .3rem; }
summary { cursor: pointer; }
.dim { color: var(--dim); }
.good { --tone: var(--good); --back: var(--good-back); }
.bad { --tone: var(--bad); --back: var(--bad-back); }
.open { --tone: var(--open); --back: var(--open-back); }
.answer { padding: 1.1rem 1.3rem 1.2rem; background: var(--panel); border: 1px solid var(--edge);
  border-left: 6px solid var(--tone);
  border-radius: 10px; }
.answer h1 { color: var(--tone); }
.answer .packet { margin-top: .15rem; color: var(--dim); }
.answer .reason { margin-top: .7rem; font-size: 1.07rem; max-width: 62rem; }
.culprit { display: flex; flex-wrap: wrap; gap: .2rem .7rem; align-items: baseline; margin-top: .8rem;
  padding: .45rem .8rem;
  background: var(--bad-back); border-radius: 8px; color: var(--bad); }
.culprit b { font-size: .8rem; text-transform: uppercase; letter-spacing: .05em; }
.culprit code { font-size: 13.5px; }
.about { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .9rem .2rem 0; font-size: .88rem; }
.about dt { color: var(--dim); font-size: .78rem; text-transform: uppercase; letter-spacing: .05em; }
.tag { display: inline-block; padding: 0 .55em; border-radius: 1em; background: var(--back); color: var(--tone);
  font-weight: 600;
  font-size: .86rem; }
.card { padding: .8rem 1rem; background: var(--panel); border: 1px solid var(--edge); border-radius: 10px; }
.card + .card { margin-top: .6rem; }
.card pre { margin-top: .6rem; }
.card .outcomes { margin-top: .5rem; padding: 0; list-style: none; }
.card .evidence { font-size: .9rem; color: var(--dim); }
.ways { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.4rem;
  align-items: start; }
.ways h3 { display: flex; flex-wrap: wrap; gap: .5rem; align-items: baseline; margin-bottom: .7rem; }
.arrow { position: relative; width: 2px; height: 1.3rem; margin: 0 auto; background: var(--dim); }
.arrow::after { content: ""; position: absolute; left: -4px; bottom: 0; border: 5px solid transparent;
  border-top: 7px solid var(--dim);
  border-bottom: 0; }
.way > .arrow { height: 1.9rem; margin-bottom: .3rem; }
.place { display: flex; flex-wrap: wrap; justify-content: center; gap: 0 .6rem; align-items: baseline;
  width: fit-content; max-width: 100%;
  min-width: 11rem; margin-left: auto; margin-right: auto; padding: .4rem 1.1rem; background: var(--place);
  border: 1px solid var(--edge);
  border-radius: 10px; text-align: center; }
.place b::first-letter { text-transform: uppercase; }
.node { position: relative; padding: 0 .8rem 1rem; border: 2px solid var(--edge); border-radius: 14px; }
.node > .name { position: absolute; top: .45rem; left: .9rem; max-width: 40%; color: var(--dim); font-size: .85rem;
  line-height: 1.2; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
.node > .arrow { height: 1.1rem; }
.node > .name + .stage, .node > .name + .end { margin-top: 2.3rem; }
.link { width: fit-content; max-width: 100%; margin: 0 auto; padding: .1rem .9rem; background: var(--ink);
  color: var(--page);
  border-radius: 1em; font-size: .85rem; font-weight: 600; }
.node > .name + .link { margin-top: -.9rem; }
.node > .name + .link + .arrow { height: 2rem; }
.node > .link:last-child { margin-bottom: -1.9rem; }
.way > .node:has(> .link:last-child) + .arrow { margin-top: .9rem; height: 1.2rem; }
.way > .arrow:has(+ .node) { height: 1.2rem; margin-bottom: .9rem; }
.stage { background: var(--panel); border: 1px solid var(--edge); border-radius: 10px; }
.stage > b { display: block; padding: .3rem .8rem; color: var(--dim); font-size: .78rem; text-transform: uppercase;
  letter-spacing: .05em; }
.step { padding: .4rem .8rem; border-top: 1px solid var(--edge); }
.step .where { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; color: var(--dim);
  font-size: .82rem; }
.step.guilty { background: var(--bad-back); color: var(--bad); }
.step.guilty .where { color: inherit; }
.stage.guilty { border: 2px solid var(--bad); }
.change { display: flex; flex-wrap: wrap; gap: 0 .5rem; margin-top: .25rem; padding: .1rem .6rem;
  width: fit-content; max-width: 100%;
  background: var(--change-back); color: var(--change); border-radius: 6px; font-size: .86rem; }
.end { padding: .5rem .8rem; background: var(--back); color: var(--tone); border: 2px solid var(--tone);
  border-radius: 10px; text-align: center; }
.end .counted { font-size: .82rem; opacity: .85; }
.place.bad, .place.open { background: var(--back); color: var(--tone); border-color: var(--tone); }
@media print {
  body { max-width: none; padding: 1px; background: none; zoom: .8; }
  .card, .way, .stage, .step, .place, pre { break-inside: avoid; }
  .ways { grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
  h2, h3, summary { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
