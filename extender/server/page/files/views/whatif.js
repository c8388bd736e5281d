// What if nodes were deleted, drained or cordoned: where their pods and the pending ones would go. Nothing of the cluster is changed.

import { badge, el, nothing, problem, table, update } from "../dom.js";
import { Problem, service, wait } from "../fetching.js";
import { choice, field } from "../forms.js";
import { fill, usualKey } from "../map_filling.js";
import { legend, NodeMap } from "../node_map.js";
import { podAddress, pushQuery } from "../routing.js";
import { overview } from "../service.js";
import { count, counted, reason } from "../words.js";

const ROWS = 200;
const SUGGESTED = 200;
const MOST_PODS = 1000; // pending pods that are placed, after the pods of changed nodes
const PATIENCE = 60_000;
const TRIES = 4;
const VERBS = [["delete", "are deleted"], ["drain", "are drained"], ["cordon", "are cordoned"]];
const DISPLACED = [["place", "are placed again"], ["gone", "are gone"]];
const KINDS = { placed: "good", rejected: "bad", gated: "neutral", gone: "neutral" };
const ORDER = ["rejected", "gated", "placed", "gone"];

export function title() {
  return "What if";
}

export async function open({ query, outlet, signal, say }) {
  const about = await overview(signal, outlet);
  if (about === null) return;
  if (!about.features?.whatif) return update(outlet, nothing("What-if is switched off in this service."));
  const view = new WhatIf(outlet, query, signal, say);
  view.map(usualKey((about.topologyKeys ?? []).map((each) => each.key)));
  await view.compute();
}

class WhatIf {
  #nodes;
  #verb;
  #displaced;
  #map;
  #found = null;
  #text = "";
  #problem = null;
  #superseded = new AbortController();

  constructor(outlet, query, signal, say) {
    this.outlet = outlet;
    this.signal = signal;
    this.say = say;
    this.#nodes = (query.nodes ?? "").split(",").filter(Boolean);
    this.#verb = VERBS.some(([verb]) => verb === query.verb) ? query.verb : "delete";
    this.#displaced = query.displaced || "place";
  }

  /** Shows the nodes; a click takes one away, or puts it back. */
  map(key) {
    this.#map = new NodeMap((name) => this.#toggle(name), this.signal);
    this.#map.crossOut(this.#nodes);
    fill(this.#map, { key, namespace: "", selector: "", colour: "cpu" }, this.signal, () => this.draw());
  }

  #toggle(name) {
    const without = this.#nodes.filter((each) => each !== name);
    this.#change(without.length < this.#nodes.length ? without : [...this.#nodes, name]);
  }

  #change(nodes, { verb = this.#verb, displaced = this.#displaced } = {}) {
    this.#nodes = nodes;
    this.#verb = verb;
    this.#displaced = displaced;
    pushQuery({ nodes: nodes.join(","), verb: verb === "delete" ? "" : verb, displaced: displaced === "place" ? "" : displaced });
    this.#map.crossOut(nodes);
    this.compute();
  }

  /** Asks, unless no node is away; a question that is overtaken by another one is dropped. */
  async compute() {
    this.#superseded.abort();
    this.#superseded = new AbortController();
    const signal = AbortSignal.any([this.signal, this.#superseded.signal]);
    this.#problem = null;
    this.#text = this.#nodes.length ? "Trying…" : "";
    if (!this.#nodes.length) this.#found = null;
    this.draw();
    if (!this.#nodes.length) return;
    try {
      this.#found = await this.#answer(signal);
      this.say(summary(this.#found));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.#found = null;
      this.#problem = error;
    }
    this.#text = "";
    this.draw();
  }

  /** The answer; a service that is busy is asked again a few times. */
  async #answer(signal) {
    const body = {
      [this.#verb]: this.#verb === "delete" ? this.#nodes.map((name) => ({ kind: "Node", name })) : this.#nodes,
      displaced: this.#displaced,
      place: { pending: true, limit: MOST_PODS },
    };
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await service.whatif({ body, signal, patience: PATIENCE });
      } catch (error) {
        if (error.status !== 429 || attempt === TRIES) throw error;
        await wait(1000 * Math.max(1, error.seconds) * attempt, signal);
      }
    }
  }

  draw() {
    update(
      this.outlet,
      el("p", { class: "note" }, "Computed on a copy with the rules of the extender. Nothing of the cluster changes. Click a node to take it away."),
      this.#map.element,
      legend("none;", "CPU requested: little", "all"),
      this.#controls(),
      this.#chips(),
      this.#text ? el("p", { class: "note" }, this.#text) : null,
      this.#problem ? problem(this.#problem) : null,
      this.#found ? result(this.#found) : null,
    );
  }

  #controls() {
    const suggestions = this.#map.names.slice(0, SUGGESTED);
    const add = (name) => name && !this.#nodes.includes(name) && this.#toggle(name);
    return el(
      "div",
      { class: "controls" },
      field("Take a node away", "", add, { hint: "name of a node", suggestions, empties: true }),
      choice("The nodes", this.#verb, VERBS, (verb) => this.#change(this.#nodes, { verb })),
      this.#verb === "cordon" ? null : choice("Its pods", this.#displaced, DISPLACED, (displaced) => this.#change(this.#nodes, { displaced })),
    );
  }

  #chips() {
    if (!this.#nodes.length) return nothing("No node is away.");
    const chip = (name) => [
      el("code", {}, name),
      " ",
      el("button", { type: "button", "aria-label": `Put ${name} back`, onclick: () => this.#toggle(name) }, "Put back"),
    ];
    return el("ul", { class: "chips", "aria-label": "Nodes that are away" }, this.#nodes.map((name) => el("li", { "data-key": name }, chip(name))));
  }
}

function summary(found) {
  const { gone = 0, gated = 0, notTried = 0 } = found.summary;
  const parts = [
    fate(found, "displaced", "pod without its node", "pods without their node"),
    fate(found, "pending", "pending pod", "pending pods"),
    gated ? `${counted(gated, "pod")} would wait at a gate.` : "",
    gone ? `${counted(gone, "pod")} would be gone.` : "",
    notTried ? `${counted(notTried, "pending pod")} not tried.` : "",
  ];
  return parts.filter(Boolean).join(" ") || "No pod would move.";
}

/** What becomes of the pods of an origin: `5 pods without their node: 4 would be placed, 1 would be pending.` */
function fate(found, origin, one, several) {
  const of = (state) => (found.placements ?? []).filter((each) => each.origin === origin && each.state === state).length;
  const [placed, rejected] = [of("placed"), of("rejected")];
  if (!placed && !rejected) return "";
  return `${counted(placed + rejected, one, several)}: ${count(placed)} would be placed, ${count(rejected)} would be pending.`;
}

function result(found) {
  const rows = [...(found.placements ?? [])].sort((one, other) => rank(one) - rank(other));
  const columns = [
    { head: "Pod", isName: true, cell: (each) => el("a", { href: podAddress(each.pod) }, each.pod) },
    { head: "Result", cell: (each) => badge(each.state, KINDS[each.state]) },
    { head: "From", isShort: true, cell: (each) => each.was || each.origin },
    { head: "To", isShort: true, cell: (each) => [each.node || "–", each.unchecked ? el("p", { class: "under" }, `not checked: ${each.unchecked}`) : null] },
    { head: "Why not", cell: whyNot },
  ];
  return [
    el("p", { class: "summary" }, summary(found)),
    rows.length ? table("Where pods would go, the pods of changed nodes first", columns, rows.slice(0, ROWS), (each) => each.pod) : nothing("No pod would move."),
    rows.length > ROWS ? el("p", { class: "note" }, `${count(rows.length - ROWS)} more are not shown.`) : null,
  ];
}

/** Displaced pods before pending ones, and of each those without a place first. */
function rank(each) {
  return (each.origin === "pending" ? ORDER.length : 0) + ORDER.indexOf(each.state);
}

function whyNot(each) {
  if (each.state === "gone") return each.reason || "–";
  if (each.state !== "rejected") return "–";
  const obstacles = (each.obstacles ?? []).map((one) => `${reason(one.reason)} (${counted(one.nodes ?? 1, "node")})`);
  return obstacles.join("; ") || each.reason || "–";
}
