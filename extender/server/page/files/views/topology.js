// The domains of a topology key as a map and as a table, with the pods of a chosen workload; and the nodes of one domain.

import { badge, bar, el, nothing, problem, table, update } from "../dom.js";
import { poll, service } from "../fetching.js";
import { overview } from "../service.js";
import { choice, field, pager } from "../forms.js";
import { podLinks } from "../constraint_bars.js";
import { COLOURS, fill, used, usualKey } from "../map_filling.js";
import { legend, NodeMap } from "../node_map.js";
import { address } from "../routing.js";
import { bytes, count, counted, cpu, percent, shownDomain } from "../words.js";

const EVERY = 5000;
const ROWS = 100; // of a table

export function title() {
  return "Topology";
}

export async function open({ query, outlet, signal, say }) {
  const about = await overview(signal, outlet);
  if (about === null) return;
  const keys = (about.topologyKeys ?? []).map((each) => each.key);
  const key = query.key || usualKey(keys);
  const asked = { key, namespace: query.namespace ?? "", selector: query.selector ?? "", domain: query.domain ?? "" };
  const chosen = { ...asked, colour: query.colour || (asked.selector || asked.namespace ? "matching" : "cpu") };
  const map = query.domain === undefined ? new NodeMap((name, block) => choose(chosen, name, block), signal) : null;
  const shown = { found: null, progress: "", hasWhatIf: about.features?.whatif };
  const redraw = () => shown.found && update(outlet, draw(shown, keys, chosen, query, map));
  if (map) fill(map, chosen, signal, (progress) => ((shown.progress = progress), redraw()));
  await poll(() => service.topology({ query: { ...asked, after: query.after, limit: ROWS }, signal }), {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      if (!shown.found) say(summary(found, chosen));
      shown.found = found;
      redraw();
    },
    onProblem: (error) => shown.found || update(outlet, controls(keys, chosen), problem(error)),
  });
}

function choose(chosen, name, block) {
  const domain = block || name;
  location.hash = address(["topology"], { ...chosen, domain });
}

function draw({ found, progress, hasWhatIf }, keys, chosen, query, map) {
  const { domain } = chosen;
  return [
    controls(keys, chosen),
    domain ? el("p", {}, el("a", { href: address(["topology"], { ...chosen, domain: "" }) }, `All domains of ${chosen.key}`)) : null,
    el("p", { class: "summary" }, summary(found, chosen)),
    map ? [map.element, legend(...scaleOf(chosen.colour)), el("p", { class: "note" }, progress)] : null,
    domain ? nodeTable(found, chosen, hasWhatIf) : domainTable(found, chosen),
    pager(found, ["topology"], query),
  ];
}

function summary(found, chosen) {
  const matching = asksForPods(chosen) ? `; ${counted(found.matching, "pod")} match` : "";
  if (found.domain !== undefined && found.domain !== null) {
    return `${found.key} ${found.domain}: ${counted((found.nodes ?? []).length + (found.more ?? 0), "node")}${matching}.`;
  }
  const lacking = found.lacking ? `; ${counted(found.lacking, "node")} without it` : "";
  return `${counted((found.domains ?? []).length + (found.more ?? 0), "domain")} of ${found.key}${lacking}${matching}.`;
}

function controls(keys, chosen) {
  const options = keys.includes(chosen.key) ? keys : [chosen.key, ...keys];
  const go = (changed) => (location.hash = address(["topology"], { ...chosen, domain: "", ...changed }));
  return el(
    "div",
    { class: "controls", "data-key": "controls" },
    choice("Topology key", chosen.key, options, (key) => go({ key })),
    field("Namespace", chosen.namespace, (namespace) => go({ namespace, colour: "" })),
    field("Pods with labels", chosen.selector, (selector) => go({ selector, colour: "" }), { hint: "app=web,tier in (a,b)" }),
    chosen.domain ? null : choice("Colour", chosen.colour, COLOURS, (colour) => go({ colour })),
  );
}

function scaleOf(colour) {
  return colour === "matching" || colour === "pods" ? ["none;", "few", "most on one node"] : ["none;", "little", "all"];
}

function resources() {
  return [
    {
      head: "CPU requested",
      cell: (each) => {
        const share = used(each, "freeMilliCpu", "allocatableMilliCpu");
        return bar(share, `${percent(share)} of ${cpu(each.allocatableMilliCpu)}, ${cpu(each.freeMilliCpu)} free`);
      },
    },
    {
      head: "Memory requested",
      cell: (each) => {
        const share = used(each, "freeMemory", "allocatableMemory");
        return bar(share, `${percent(share)} of ${bytes(each.allocatableMemory)}`);
      },
    },
  ];
}

function matchingColumn(rows) {
  const most = Math.max(1, ...rows.map((each) => each.matching));
  return { head: "Pods that match", cell: (each) => bar(each.matching / most, count(each.matching), "good") };
}

function domainTable(found, chosen) {
  const rows = found.domains ?? [];
  if (!rows.length) return nothing(`No node has the label ${chosen.key}.`);
  const columns = [
    { head: "Domain", isName: true, cell: (each) => el("a", { href: address(["topology"], { ...chosen, domain: each.domain }) }, shownDomain(each.domain)) },
    { head: "Nodes", isNumber: true, cell: (each) => [count(each.nodes), each.unschedulable ? ` (${count(each.unschedulable)} cordoned)` : ""] },
    { head: "Pods", isNumber: true, cell: (each) => count(each.pods) },
    ...(asksForPods(chosen) ? [matchingColumn(rows)] : []),
    ...resources(),
  ];
  return table(`Domains of ${chosen.key}`, columns, rows, (each) => each.domain);
}

function nodeTable(found, chosen, hasWhatIf) {
  const rows = found.nodes ?? [];
  if (!rows.length) return nothing(`No node has ${chosen.key} ${chosen.domain}.`);
  const columns = [
    { head: "Node", isName: true, cell: (each) => [each.node, each.unschedulable ? [" ", badge("cordoned", "warning")] : ""] },
    { head: "Pods", isNumber: true, cell: (each) => count(each.pods) },
    ...(asksForPods(chosen) ? [{ head: "Pods that match", cell: (each) => podLinks(each.podNames ?? [], each.matching) }] : []),
    ...resources(),
    ...(hasWhatIf ? [WHAT_IF] : []),
  ];
  return table(`Nodes of ${chosen.key} ${chosen.domain}`, columns, rows, (each) => each.node);
}

const WHAT_IF = {
  head: "What if",
  cell: (each) => el("a", { href: address(["whatif"], { nodes: each.node }), "aria-label": `What if ${each.node} were away` }, "without it"),
};

function asksForPods(chosen) {
  return Boolean(chosen.namespace || chosen.selector);
}
