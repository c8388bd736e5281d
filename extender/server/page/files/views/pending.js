// Pending pods, the longest waiting first, each with why it is pending and what would help.

import { badge, el, nothing, problem, table, update } from "../dom.js";
import { causes, helps, isExplained, verdict } from "../explanation.js";
import { poll, Problem, service, wait } from "../fetching.js";
import { choice, field, pager } from "../forms.js";
import { address } from "../routing.js";
import { age, asking, count, counted, reason } from "../words.js";

const EVERY = 3000;
const PAGE = 100;
const KEPT = 30_000; // an explanation, in milliseconds, unless the pod was rejected for other reasons
const PAUSE = 100; // between two questions of this page
const KINDS = { pending: "warning", gated: "neutral", assumed: "good", preempting: "warning" };
const STATES = {
  pending: "no node passes, or the scheduler has sent no request yet",
  preempting: "waits for pods of lower priority to end",
};
const ROWS = [["", "one for each workload and reason"], ["pod", "one for each pod"]];

export function title() {
  return "Pending pods";
}

export function open({ query, outlet, signal, say }) {
  let last = null;
  let told = -1;
  const redraw = () => last && draw(outlet, last, query, explanations, seen);
  const explanations = new Explanations(signal, redraw);
  const look = (entries) => entries.forEach((each) => explanations.want(each.target.dataset.key, each.isIntersecting));
  const seen = new IntersectionObserver(look, { rootMargin: "200%" }); // ahead of a reader who scrolls
  signal.addEventListener("abort", () => seen.disconnect());
  explanations.run();
  const { rows, ...chosen } = query;
  const asked = { limit: PAGE, group: rows === "pod" ? "" : "workload", ...chosen };
  return poll(() => service.pending({ query: asked, signal }), {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      last = found;
      explanations.rows(found.pods ?? []);
      redraw();
      const all = total(found);
      if (told !== all && told !== -1) say(counted(all, "pending pod"));
      told = all;
    },
    onProblem: (error) => last || update(outlet, problem(error)),
  });
}

/** How many pods have no node. */
function total(found) {
  return Object.values(found.reasons ?? {}).reduce((sum, each) => sum + each, 0);
}

function draw(outlet, found, query, explanations, seen) {
  const rows = found.pods ?? [];
  const columns = [
    {
      head: "Pod",
      isName: true,
      cell: (each) => [
        el("a", { href: address(["pods", each.namespace, each.pod]) }, `${each.namespace}/`, el("wbr"), each.pod),
        el("p", { class: "under" }, badge(each.state, KINDS[each.state]), ` for ${age(each.since)}`, priority(each)),
        alike(each),
      ],
    },
    { head: "Why", cell: (each) => why(each, explanations.of(each)) },
    { head: "What would help", cell: (each) => help(each, explanations.of(each)) },
  ];
  update(
    outlet,
    controls(found, query),
    rows.length ? table(caption(found, query), columns, rows, (each) => each.uid) : nothing(none(query)),
    pager(found, ["pending"], query),
  );
  for (const row of outlet.querySelectorAll("tbody tr")) seen.observe(row);
}

function controls(found, query) {
  const go = (changed) => (location.hash = address(["pending"], { ...query, after: "", ...changed }));
  const reasons = Object.entries(found.reasons ?? {}).sort(([, one], [, other]) => other - one);
  const named = reasons.map(([name, number]) => [name, `${reason(name)} (${count(number)})`]);
  if (query.reason && !found.reasons?.[query.reason]) named.push([query.reason, `${reason(query.reason)} (0)`]);
  return el(
    "div",
    { class: "controls", "data-key": "controls" },
    field("Namespace", query.namespace ?? "", (namespace) => go({ namespace })),
    choice("Reason", query.reason ?? "", [["", `all (${count(total(found))})`], ...named], (chosen) => go({ reason: chosen })),
    choice("Rows", query.rows ?? "", ROWS, (rows) => go({ rows })),
  );
}

function caption(found, query) {
  const pods = query.reason ? (found.reasons?.[query.reason] ?? 0) : total(found);
  const rows = (found.pods ?? []).length + (found.more ?? 0);
  const grouped = query.rows === "pod" ? "" : `, ${counted(rows, "workload")} by reason`;
  return `${counted(pods, "pod")} without a node${grouped}, the longest waiting first`;
}

function none({ namespace, reason: chosen }) {
  const where = namespace ? ` of ${namespace}` : "";
  return `No pod${where} is pending${chosen ? ` because of this: ${reason(chosen)}` : ""}.`;
}

/** The other pods of the row, which wait for the same reason. */
function alike(each) {
  return each.alike > 1 ? el("p", { class: "under" }, `and ${counted(each.alike - 1, "younger pod")} of its workload`) : null;
}

function priority(each) {
  return each.priority ? `, priority ${each.priority}` : "";
}

function why(row, known) {
  if (row.unasked) return el("p", {}, asking(row.unasked));
  if (known instanceof Problem) return el("p", { class: "nothing" }, known.message);
  if (known && isExplained(known)) return [...causes(known, 2), known.passing ? el("p", { class: "under" }, verdict(known)) : null];
  const labels = (row.reasons ?? []).map(reason).join("; ");
  return [
    el("p", {}, labels || STATES[row.state] || reason(row.reason ?? row.state)),
    row.nominatedNode ? el("p", { class: "under" }, `Nominated to ${row.nominatedNode}.`) : null,
    row.error || row.rejection ? el("p", { class: "under" }, row.error || row.rejection) : null,
    known ? el("p", { class: "under" }, verdict(known)) : null,
  ];
}

function help(row, known) {
  if (row.state !== "pending" || known instanceof Problem) return "–";
  if (!known) return el("span", { class: "nothing" }, "…");
  return isExplained(known) ? helps(known).slice(0, 3) : "–";
}

/** Explanations of the rows that are seen, asked for one at a time. */
class Explanations {
  #known = new Map(); // by UID: {answer, until, about}
  #wanted = new Set();
  #rows = new Map();
  #signal;
  #onChange;
  #wake = () => {};

  constructor(signal, onChange) {
    this.#signal = signal;
    this.#onChange = onChange;
  }

  /** The rows that are shown now; the others are forgotten. */
  rows(found) {
    this.#rows = new Map(found.map((each) => [each.uid, each]));
    for (const uid of this.#known.keys()) if (!this.#rows.has(uid)) this.#known.delete(uid);
    this.#wake();
  }

  want(uid, isSeen) {
    if (isSeen) this.#wanted.add(uid);
    else this.#wanted.delete(uid);
    this.#wake();
  }

  of(row) {
    return this.#known.get(row.uid)?.answer;
  }

  async run() {
    while (!this.#signal.aborted) {
      const row = document.hidden ? undefined : this.#next();
      if (row === undefined) await this.#changed();
      else await this.#ask(row);
    }
  }

  #next() {
    const rows = [...this.#wanted].map((uid) => this.#rows.get(uid)).filter((row) => row?.state === "pending");
    const isDue = (row) => {
      const known = this.#known.get(row.uid);
      return !known || known.until < Date.now() || known.about !== about(row);
    };
    return [...this.#rows.values()].find((row) => rows.includes(row) && isDue(row));
  }

  #changed() {
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#signal.addEventListener("abort", resolve, { once: true });
    });
  }

  async #ask(row) {
    let pause = PAUSE;
    try {
      const answer = await service.explain(row.namespace, row.pod, { signal: this.#signal });
      this.#known.set(row.uid, { answer, until: Date.now() + KEPT, about: about(row) });
      this.#onChange();
    } catch (error) {
      if (this.#signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      if (error.status === 404 || error.status === 413) {
        this.#known.set(row.uid, { answer: error, until: Date.now() + KEPT, about: about(row) });
        this.#onChange();
      } else pause = 1000 * Math.max(1, error.seconds) * (1 + Math.random());
    }
    await wait(pause, this.#signal);
  }
}

function about(row) {
  return `${row.state} ${(row.reasons ?? []).join(" ")}`;
}
