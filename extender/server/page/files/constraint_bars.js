// One constraint as a figure: a bar for each domain, and the line that a domain may not pass.

import { badge, el } from "./dom.js";
import { podAddress } from "./routing.js";
import { count, counted, shownDomain } from "./words.js";

const HEADS = {
  podAffinity: "Must be near pods",
  podAntiAffinity: "Must be apart from pods",
  existingPodAntiAffinity: "Existing pods keep it away",
  topologySpread: "Must be spread evenly",
};
const FEW_DOMAINS = 20;

/** The figures of all constraints. */
export function constraintBars(states) {
  return states.map((state, at) => figure(state, at));
}

function figure(state, at) {
  const domains = state.domains ?? [];
  const largest = Math.max(1, ...domains.map((each) => each.count), limitOf(state) ?? 0);
  const rows = domains.map((each) => row(each, state, largest));
  return el(
    "figure",
    { class: "constraint", "data-key": `${at} ${state.kind} ${state.topologyKey} ${state.pods}` },
    el(
      "figcaption",
      {},
      el("h3", {}, `${HEADS[state.kind] ?? state.kind} by `, el("code", {}, state.topologyKey)),
      el("p", {}, "Counts pods with ", el("code", {}, state.pods), ` in ${reach(state.reach)}.`),
      notes(state).map((note) => el("p", { class: "note" }, note)),
    ),
    domains.length ? bars(rows, state) : el("p", { class: "nothing" }, "No domain: no node has the label."),
    state.moreDomains ? el("p", { class: "note" }, `And ${counted(state.moreDomains, "more domain")}.`) : null,
    state.moreTerms ? el("p", { class: "note" }, `And ${counted(state.moreTerms, "more term")} of existing pods.`) : null,
  );
}

function bars(rows, state) {
  const limit = limitOf(state);
  const told = limit === null ? "a domain needs at least one pod" : `a domain passes with at most ${count(limit)} now`;
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `Domains of ${state.topologyKey}` },
    el(
      "table",
      { class: "bars" },
      el("caption", {}, `Pods by ${state.topologyKey}; ${told}`),
      el("thead", {}, el("tr", {}, ["Domain", "Pods", "Verdict", "Nodes", "Such as"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.slice(0, FEW_DOMAINS)),
      rows.length > FEW_DOMAINS ? el("tbody", { class: "rest" }, rows.slice(FEW_DOMAINS)) : null,
    ),
  );
}

function row(each, state, largest) {
  const limit = limitOf(state);
  return el(
    "tr",
    { "data-key": each.domain },
    el("th", { scope: "row" }, shownDomain(each.domain)),
    el(
      "td",
      {},
      el(
        "span",
        {
          class: `bar ${each.passes ? "good" : "bad"} ${limit === null ? "" : "limited"}`,
          vars: { share: each.count / largest, limit: limit === null ? 0 : Math.max(0, limit) / largest },
        },
        el("span", { class: "value" }, count(each.count)),
      ),
    ),
    el("td", {}, each.passes ? badge("passes", "good") : badge("rejects", "bad")),
    el("td", { class: "number", "data-head": "Nodes" }, count(each.nodes)),
    el("td", { "data-head": "Such as" }, podLinks(each.pods ?? [], each.count)),
  );
}

/** Links to pods, and how many there are more. */
export function podLinks(names, all = names.length) {
  const links = names.map((name, at) => [at ? ", " : "", el("a", { href: podAddress(name) }, name)]);
  return el("span", {}, links, all > names.length && names.length ? ` and ${count(all - names.length)} more` : "");
}

function limitOf(state) {
  return state.limit ?? null;
}

function reach(found) {
  if (found.isEvery) return `all namespaces (${found.why})`;
  const names = found.namespaces ?? [];
  const more = (found.count ?? 0) - names.length;
  const listed = names.length ? names.join(", ") : "no namespace";
  return `${listed}${more > 0 ? ` and ${count(more)} more` : ""} (${found.why})`;
}

function notes(state) {
  const found = [];
  if (state.kind === "topologySpread") {
    found.push(
      `Skew at most ${state.maxSkew}: the minimum over ${counted(state.eligible ?? 0, "eligible domain")} is ` +
        `${count(state.minimum)}, so a domain may have at most ${count(state.limit)} before this pod.`,
    );
    if ((state.minDomains ?? 0) > (state.eligible ?? 0)) {
      found.push(`minDomains ${state.minDomains} is more than the eligible domains, so the minimum counts as 0.`);
    }
    for (const each of state.leftOut ?? []) found.push(`Without ${shownDomain(each.domain)}: ${each.why}.`);
  }
  if (state.excludesItself) found.push("Its selector does not select the pod itself, so placing the pod changes no count.");
  if (state.isFirstPod) found.push("No pod matches yet, and this one matches itself: every domain passes.");
  if (state.carrier) found.push(el("span", {}, "Carried by ", podLinks([state.carrier]), ", for example."));
  if (state.lacking) {
    found.push(`${counted(state.lacking, "node")} without the label: ${state.rejectsLacking ? "they reject it" : "they pass"}.`);
  }
  return found;
}
