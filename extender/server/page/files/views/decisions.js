// Decisions as they are made: a stream that can be paused and filtered. It begins with the last ones.

import { badge, el, nothing, table, update } from "../dom.js";
import { connection, Problem, service, shown, wait } from "../fetching.js";
import { choice, field } from "../forms.js";
import { address, replaceQuery } from "../routing.js";
import { clock, count, counted } from "../words.js";
import { outcome } from "./pod.js";

const KEPT = 1000; // decisions in this tab
const ROWS = 100; // of them shown
const DRAW_EVERY = 250;
const LONGEST_WAIT = 30_000;
const VERBS = [["", "all"], ["filter", "filter"], ["preempt", "preempt"], ["bind", "bind"]];
const RESULTS = [["", "all"], ["passed", "passed"], ["rejected", "rejected"], ["error", "error"]];

export function title() {
  return "Live decisions";
}

export async function open({ query, outlet, signal, say }) {
  const view = new Live(outlet, query, signal, say);
  signal.addEventListener("abort", () => view.close());
  document.addEventListener("visibilitychange", () => document.hidden && view.close(), { signal });
  view.draw();
  while (!signal.aborted) {
    await shown(signal);
    if (!signal.aborted) await view.follow();
  }
}

class Live {
  #rows = []; // the latest first
  #held = []; // arrived while paused
  #known = new Set();
  #isPaused = false;
  #missed = 0;
  #failures = 0;
  #state = "connecting";
  #timer = 0;
  #ended = () => {};

  constructor(outlet, query, signal, say) {
    this.outlet = outlet;
    this.query = query;
    this.signal = signal;
    this.say = say;
  }

  /** Reads the stream until it ends; then waits before the caller tries again. */
  async follow() {
    const opened = await this.#stream();
    if (this.signal.aborted || document.hidden) return;
    this.#failures = opened ? 0 : this.#failures + 1;
    this.#tell(opened ? "interrupted" : "refused: too many tabs read it already");
    await this.#probe();
    await wait(Math.min(LONGEST_WAIT, 1000 * 2 ** this.#failures) * (0.8 + 0.4 * Math.random()), this.signal);
  }

  /** Whether it was opened, once it has ended. The browser opens it again by itself where the connection was lost. */
  #stream() {
    return new Promise((resolve) => {
      let opened = false;
      const source = new EventSource(service.decisionStream(ROWS));
      this.#ended = () => (source.close(), resolve(opened));
      source.onopen = () => {
        opened = true;
        connection.note(null);
        this.#tell("live");
      };
      source.addEventListener("decision", (event) => this.#take(JSON.parse(event.data)));
      source.addEventListener("missed", (event) => this.#miss(JSON.parse(event.data).count));
      source.onerror = () => {
        if (source.readyState === EventSource.CLOSED) return this.#ended(); // refused: the browser gives up
        this.#tell("interrupted");
        this.#probe();
      };
    });
  }

  /** Finds out whether the service is there: the browser does not say why a stream ended. */
  async #probe() {
    try {
      await service.version({ signal: this.signal });
    } catch (error) {
      if (!this.signal.aborted && !(error instanceof Problem)) throw error;
    }
  }

  close() {
    this.#ended();
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #tell(state) {
    this.#state = state;
    this.draw();
  }

  #miss(number) {
    this.#missed += number;
    this.say(`${counted(number, "decision")} missed.`);
    this.#later();
  }

  #take(decision) {
    const key = keyOf(decision);
    if (this.#known.has(key)) return;
    this.#known.add(key);
    const into = this.#isPaused ? this.#held : this.#rows;
    into.unshift(decision);
    for (const gone of into.splice(KEPT)) this.#known.delete(keyOf(gone));
    this.#later();
  }

  #later() {
    this.#timer ||= setTimeout(() => ((this.#timer = 0), this.signal.aborted || this.draw()), DRAW_EVERY);
  }

  #pause() {
    this.#isPaused = !this.#isPaused;
    if (!this.#isPaused) this.#rows = [...this.#held, ...this.#rows].slice(0, KEPT);
    if (!this.#isPaused) this.#held = [];
    this.say(this.#isPaused ? "Paused." : "Live again.");
    this.draw();
  }

  #choose(changed) {
    this.query = { ...this.query, ...changed };
    replaceQuery(this.query);
    this.draw();
  }

  draw() {
    if (this.signal.aborted) return;
    const { pod = "", verb = "", result = "" } = this.query;
    const rows = this.#rows.filter((each) => matches(each, pod, verb, result));
    const waiting = this.#held.filter((each) => matches(each, pod, verb, result)).length;
    update(
      this.outlet,
      el(
        "div",
        { class: "controls" },
        el("button", { type: "button", "aria-pressed": String(this.#isPaused), onclick: () => this.#pause() }, this.#isPaused ? "Go on" : "Pause"),
        field("Namespace or pod", pod, (text) => this.#choose({ pod: text })),
        choice("Verb", verb, VERBS, (value) => this.#choose({ verb: value })),
        choice("Result", result, RESULTS, (value) => this.#choose({ result: value })),
      ),
      el("p", { class: "note" }, this.#isPaused ? badge("paused", "warning") : badge(this.#state, this.#state === "live" ? "good" : "neutral"), ` ${this.#about(rows, waiting)}`),
      rows.length ? table("Decisions, the latest first", COLUMNS, rows.slice(0, ROWS), keyOf) : nothing("No such decision yet."),
    );
  }

  #about(rows, waiting) {
    const found = [counted(rows.length, "decision")];
    if (rows.length > ROWS) found.push(`the latest ${ROWS} are shown`);
    if (waiting) found.push(`${count(waiting)} more while paused`);
    if (this.#missed) found.push(`${count(this.#missed)} missed, as this tab was too slow`);
    return `${found.join("; ")}.`;
  }
}

const COLUMNS = [
  { head: "Time", isShort: true, cell: (each) => clock(each.time) },
  { head: "Verb", cell: (each) => each.verb },
  { head: "Pod", isName: true, cell: (each) => el("a", { href: address(["pods", each.namespace, each.pod]) }, `${each.namespace}/${each.pod}`) },
  { head: "Passed", isNumber: true, cell: (each) => `${count(each.passed)} of ${count(each.nodes)}` },
  { head: "Result", cell: (each) => [badge(kindOf(each), { passed: "good", rejected: "warning", error: "bad" }[kindOf(each)]), ` ${outcome(each)}`] },
];

function keyOf(each) {
  return `${each.time} ${each.verb} ${each.uid}`;
}

function kindOf(each) {
  if (each.error) return "error";
  return each.passed ? "passed" : "rejected";
}

function matches(each, pod, verb, result) {
  if (verb && each.verb !== verb) return false;
  if (result && kindOf(each) !== result) return false;
  return !pod || `${each.namespace}/${each.pod}`.includes(pod);
}
