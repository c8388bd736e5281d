// Starts the page: the list of views, the view of the address, and whether the service is reached.

import { el, nothing, problem, update } from "./dom.js";
import { connection, data, poll, service } from "./fetching.js";
import { parsed } from "./routing.js";
import * as constraints from "./views/constraints.js";
import * as decisions from "./views/decisions.js";
import * as flight from "./views/flight.js";
import * as overview from "./views/overview.js";
import * as pending from "./views/pending.js";
import * as pod from "./views/pod.js";
import * as policies from "./views/policies.js";
import * as topology from "./views/topology.js";
import * as whatif from "./views/whatif.js";

// By the first part of the address. A view is `title(parts)` and `open({parts, query, outlet, signal, say})`.
const VIEWS = new Map([
  ["", { ...overview, nav: "Overview" }],
  ["pending", { ...pending, nav: "Pending" }],
  ["topology", { ...topology, nav: "Topology" }],
  ["constraints", { ...constraints, nav: "Constraints" }],
  ["decisions", { ...decisions, nav: "Decisions" }],
  ["flight", { ...flight, nav: "In flight" }],
  ["policies", { ...policies, nav: "Policies" }],
  ["whatif", { ...whatif, nav: "What if" }],
  ["pods", pod],
]);
const NAME = document.title;
const EVERY = 10_000;
const OF_THE_COUNTS = new Set(["index", "policies"]); // checks that do not say that changes are missed
const main = document.getElementById("main");
let left = new AbortController();
let shown = null; // the parts and the query of the address that is shown
let about = null; // the overview

function open() {
  if (!location.hash.startsWith("#/") && location.hash !== "") return; // the skip link
  left.abort();
  left = new AbortController();
  const before = shown;
  const { parts, query } = (shown = parsed(location.hash));
  const view = VIEWS.get(parts[0] ?? "");
  const title = view ? view.title(parts) : "There is no such view";
  document.title = view ? `${title} · ${NAME}` : NAME;
  data.note(null, null);
  showViews(parts[0] ?? "");
  if (!isSamePage(before, shown)) show(title, before !== null);
  if (!view) return;
  const signal = left.signal;
  const outlet = main.querySelector(".outlet");
  Promise.resolve(view.open({ parts, query, outlet, signal, say })).catch((error) => {
    if (signal.aborted) return;
    update(outlet, problem(error));
    throw error; // a bug of the page: for the browser's log
  });
}

/** Whether only choices in a view differ. What is shown then stays until the answer comes, and the focus where it is. */
function isSamePage(one, other) {
  return one !== null && one.parts.join("/") === other.parts.join("/") && one.query.after === other.query.after;
}

function show(title, takesFocus) {
  const heading = el("h1", { tabindex: "-1" }, title);
  main.replaceChildren(heading, el("div", { class: "outlet" }, nothing("Loading…")));
  if (takesFocus) heading.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function showViews(current) {
  const items = [...VIEWS].filter(([, view]) => view.nav);
  update(
    document.getElementById("views"),
    items.map(([name, view]) =>
      el("li", {}, el("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, view.nav)),
    ),
  );
}

/** Tells users of a screen reader what has changed; at most what they need. */
function say(text) {
  document.getElementById("said").textContent = text;
}

function showConnection() {
  const place = document.getElementById("connection");
  const text = connection.since ? `Not connected since ${time(connection.since)}` : "Connected";
  place.className = connection.since ? "lost" : "";
  place.title = connection.text;
  if (place.textContent !== text) place.textContent = text;
}

/** In every view: whether what is shown may be old, and why. */
function showStale() {
  const place = document.getElementById("stale");
  const text = stale();
  place.hidden = text === "";
  if (place.textContent !== text) place.textContent = text;
}

function stale() {
  const from = data.at ? ` What is shown is from ${time(data.at)}.` : "";
  if (connection.since) return `Not connected since ${time(connection.since)}.${from}`;
  if (data.problem && data.at) return `${data.problem.message}${from}`;
  const missed = (about?.health ?? []).filter((each) => each.status === "warning" && !OF_THE_COUNTS.has(each.check));
  if (!missed.length) return "";
  const causes = missed.map((each) => `${each.check}: ${each.text}`).join("; ");
  return `The extender misses changes of the cluster, so what is shown may be old. ${causes}.`;
}

function time(moment) {
  return moment.toLocaleTimeString("en-GB");
}

/** The name of the cluster, and the version of the extender. */
function showCluster() {
  const replica = about.leader ? "" : "standby";
  document.getElementById("cluster").textContent = [about.clusterName, `version ${about.version}`, replica].filter(Boolean).join(" · ");
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the address of the view
  main.focus();
});
addEventListener("hashchange", open);
connection.listeners.add(showConnection);
connection.listeners.add(showStale);
data.listeners.add(showStale);
open();
poll(() => service.overview(), {
  every: EVERY,
  isView: false,
  signal: new AbortController().signal,
  onAnswer: (found) => ((about = found), showCluster(), showStale()),
  onProblem: () => {}, // the view says so
});
