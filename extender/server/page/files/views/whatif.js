// What if nodes were deleted, drained, cordoned, added or labelled, or policies applied: where pods would go. Nothing of the cluster is changed.

import { badge, el, nothing, problem, table, update } from "../dom.js";
import { editsOf, inWords, labelChanges, resolved } from "../edits.js";
import { Problem, service, wait } from "../fetching.js";
import { choice, field, input } from "../forms.js";
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
  const keys = (about.topologyKeys ?? []).map((each) => each.key);
  const view = new WhatIf(outlet, query, signal, say, keys);
  view.map(usualKey(keys));
  await view.compute();
}

class WhatIf {
  #nodes;
  #verb;
  #displaced;
  #edits;
  #wrong = ""; // what cannot be added, and why
  #map;
  #found = null;
  #text = "";
  #problem = null;
  #superseded = new AbortController();

  constructor(outlet, query, signal, say, keys) {
    this.keys = keys;
    this.#edits = editsOf(query.edits);
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

  #change(nodes, { verb = this.#verb, displaced = this.#displaced, edits = this.#edits } = {}) {
    this.#nodes = nodes;
    this.#verb = verb;
    this.#displaced = displaced;
    this.#edits = edits;
    this.#wrong = "";
    pushQuery({
      nodes: nodes.join(","),
      verb: verb === "delete" ? "" : verb,
      displaced: displaced === "place" ? "" : displaced,
      edits: edits.length ? JSON.stringify(edits) : "",
    });
    this.#map.crossOut(nodes);
    this.compute();
  }

  #add(edit) {
    this.#change(this.#nodes, { edits: [...this.#edits, edit] });
  }

  /** Says what cannot be added, and why. */
  #refuse(text) {
    this.#wrong = text;
    this.draw();
  }

  /** Asks, unless nothing is changed; a question that is overtaken by another one is dropped. */
  async compute() {
    this.#superseded.abort();
    this.#superseded = new AbortController();
    const signal = AbortSignal.any([this.signal, this.#superseded.signal]);
    this.#problem = null;
    const isChanged = this.#nodes.length + this.#edits.length > 0;
    this.#text = isChanged ? "Trying…" : "";
    if (!isChanged) this.#found = null;
    this.draw();
    if (!isChanged) return;
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
    const edited = await resolved(this.#edits, signal);
    const away = [...new Set([...this.#nodes, ...edited.nodes])];
    this.#map.crossOut(away);
    const isDeleted = this.#verb === "delete";
    const removed = isDeleted ? away.map((name) => ({ kind: "Node", name })) : [];
    const body = {
      apply: edited.apply,
      delete: [...removed, ...edited.delete],
      ...(isDeleted ? {} : { [this.#verb]: away }),
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
      this.#forms(),
      this.#wrong ? problem({ message: this.#wrong }) : null,
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

  /** Forms for what is changed besides: each adds an edit. */
  #forms() {
    const names = this.#map.names.slice(0, SUGGESTED);
    const domains = [...this.#map.blocks].slice(0, SUGGESTED);
    return el(
      "details",
      { "data-key": "forms" },
      el("summary", {}, "Change more: zones, new nodes, labels, policies"),
      form(
        "Take a domain away",
        [input("Key", "key", { options: this.keys }), input("Domain", "domain", { hint: "zone-a", suggestions: domains })],
        ({ key, domain }) => (key && domain ? this.#add({ do: "domain", key, domain }) : this.#refuse("A domain has a topology key and a name.")),
      ),
      form(
        "Add nodes",
        [
          input("Like the node", "like", { hint: "name of a node", suggestions: names }),
          input("How many", "number", { value: "1", isShort: true }),
          input("With labels", "labels", { hint: "topology.kubernetes.io/zone=zone-b" }),
        ],
        (given) => this.#addNodes(given),
      ),
      form(
        "Change labels",
        [
          input("Kind", "kind", { options: ["Node", "Namespace"] }),
          input("Name", "name"),
          input("Labels", "labels", { hint: "team=shop,old-" }),
        ],
        (given) => this.#addLabels(given),
      ),
      form(
        "Apply objects",
        [input("JSON, as kubectl get -o json prints it: a policy, a node, a pod, a workload", "json", { isLong: true })],
        ({ json }) => this.#addObjects(json),
      ),
    );
  }

  #addNodes({ like, number, labels }) {
    const changes = labelChanges(labels);
    if (!like || !(Number(number) >= 1) || !changes || changes.removed.length) return this.#refuse("New nodes need a node that they are like, a number, and labels such as disk=ssd.");
    this.#add({ do: "add", like, count: Math.floor(Number(number)), labels: changes.labels });
  }

  #addLabels({ kind, name, labels }) {
    const changes = labelChanges(labels);
    if (!name || !changes || !labels) return this.#refuse("Labels are written as kubectl takes them: team=shop to set one, old- to remove one.");
    this.#add({ do: "label", kind, name, ...changes });
  }

  #addObjects(json) {
    try {
      const found = JSON.parse(json);
      const objects = Array.isArray(found.items) ? found.items : [found];
      if (!objects.length || !objects.every((each) => each?.kind && each?.metadata?.name)) throw new SyntaxError("an object has a kind and metadata.name");
      this.#change(this.#nodes, { edits: [...this.#edits, ...objects.map((object) => ({ do: "object", object }))] });
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.#refuse(`This is no object in JSON: ${error.message}`);
    }
  }

  #chips() {
    if (!this.#nodes.length && !this.#edits.length) return nothing("No node is away.");
    const chip = (text, verb, undo) => [
      el("code", {}, text),
      " ",
      el("button", { type: "button", "aria-label": `${verb}: ${text}`, onclick: undo }, verb),
    ];
    const away = this.#nodes.map((name) => el("li", { "data-key": name }, chip(name, "Put back", () => this.#toggle(name))));
    const without = (at) => this.#change(this.#nodes, { edits: this.#edits.filter((_, other) => other !== at) });
    const edits = this.#edits.map((edit, at) => el("li", { "data-key": `edit ${at}` }, chip(inWords(edit), "Undo", () => without(at))));
    return el("ul", { class: "chips", "aria-label": "What is changed" }, away, edits);
  }
}

/** A form of several fields. `onGiven` gets their texts by name. */
function form(title, fields, onGiven) {
  const done = (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, String(value).trim()]));
    onGiven(given);
  };
  return el(
    "form",
    { class: "change", "data-key": title, onsubmit: done },
    el("fieldset", {}, el("legend", {}, title), fields, el("button", { type: "submit" }, title)),
  );
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
    (found.notes ?? []).map((each) => el("p", { class: "note" }, `Note: ${each}.`.replace("..", "."))),
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
