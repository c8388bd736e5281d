// Workloads, and the constraints of a chosen one as a further replica would meet them: bars against the limit.

import { badge, el, nothing, problem, section, table, update } from "../dom.js";
import { constraintBars } from "../constraint_bars.js";
import { poll, service } from "../fetching.js";
import { field, pager } from "../forms.js";
import { address, podAddress } from "../routing.js";
import { count, counted } from "../words.js";

const EVERY = 5000;
const ROWS = 100;
const KINDS = {
  podAffinity: "pod affinity",
  podAntiAffinity: "anti-affinity",
  existingPodAntiAffinity: "anti-affinity of others",
  topologySpread: "topology spread",
};

export function title([, namespace, name]) {
  return name ? `Constraints of ${namespace}/${name}` : "Constraints";
}

export function open({ parts: [, namespace, name], query, outlet, signal }) {
  const question = name
    ? () => service.constraints(namespace, name, { signal })
    : () => service.workloads({ query: { limit: ROWS, ...query }, signal });
  let isDrawn = false;
  return poll(question, {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      update(outlet, name ? drawConstraints(found, namespace, name) : drawWorkloads(found, query));
      isDrawn = true;
    },
    onProblem: (error) => isDrawn || update(outlet, problem(error)),
  });
}

function drawWorkloads(found, query) {
  const rows = found.workloads ?? [];
  const columns = [
    {
      head: "Labels",
      isName: true,
      cell: chosen,
    },
    { head: "Namespace", cell: (each) => each.namespace },
    { head: "Pods", isNumber: true, cell: (each) => count(each.pods) },
    { head: "Pending", isNumber: true, cell: (each) => (each.pending ? badge(count(each.pending), "warning") : "0") },
    { head: "Constraints", cell: (each) => kinds(each.constraints ?? {}) },
    {
      head: "Where",
      cell: (each) => el("a", { href: address(["topology"], { namespace: each.namespace, selector: each.selector }) }, "on the map"),
    },
  ];
  return [
    field("Namespace", query.namespace ?? "", (namespace) => (location.hash = address(["constraints"], { namespace }))),
    rows.length
      ? table(`${counted(rows.length + (found.more ?? 0), "workload")}: pods that are alike`, columns, rows, (each) => `${each.namespace} ${each.selector}`)
      : nothing("No pods."),
    pager(found, ["constraints"], query),
  ];
}

function chosen(each) {
  if (!each.examplePod) return each.selector || "(no labels)"; // all of its pods are gone
  return el("a", { href: address(["constraints", each.namespace, each.examplePod.split("/").at(-1)]) }, each.selector || "(no labels)");
}

function kinds(found) {
  const texts = Object.entries(found).filter(([, number]) => number).map(([kind, number]) => `${count(number)} × ${KINDS[kind] ?? kind}`);
  return texts.join(", ") || "none";
}

function drawConstraints(found, namespace, name) {
  const states = found.constraints ?? [];
  return [
    el("p", {}, "As a further replica of ", el("a", { href: podAddress(`${namespace}/${name}`) }, `${namespace}/${name}`), " would meet them now.", found.node ? ` It is on ${found.node}.` : " It has no node."),
    (found.policies ?? []).length ? el("p", {}, `Held by ${found.policies.join(", ")}.`) : null,
    found.isChanged ? el("p", { class: "note" }, "The cluster changed while this was computed, so parts may not agree.") : null,
    states.length ? section("What they count", constraintBars(states)) : nothing("This pod has no constraint that the extender counts, and no existing pod keeps it away."),
  ];
}
