// One pod: why it is pending, what would help, what its constraints count, and what was decided about it.

import { badge, el, nothing, problem, section, table, update } from "../dom.js";
import { constraintBars } from "../constraint_bars.js";
import { helps, isExplained, nodeReport, obstacleTable, verdict } from "../explanation.js";
import { poll, Problem, service } from "../fetching.js";
import { field } from "../forms.js";
import { address } from "../routing.js";
import { asking, clock, count, reason } from "../words.js";

const EVERY = 5000;
const DECISIONS = 8;
const KINDS = { pending: "warning", "does not exist": "neutral" };

export function title([, namespace = "", name = ""]) {
  return `Pod ${namespace}/${name}`;
}

export function open({ parts: [, namespace = "", name = ""], query, outlet, signal, say }) {
  let last = "";
  const node = query.node ?? "";
  const question = async () => {
    const found = await service.explain(namespace, name, { query: { node }, signal });
    return { found, constraints: await constraints(namespace, name, found, signal), decisions: await decisions(namespace, name, signal) };
  };
  return poll(question, {
    every: EVERY,
    signal,
    onAnswer: (answer) => {
      update(outlet, draw(answer, namespace, name, node));
      if (last && last !== answer.found.state) say(`${namespace}/${name} is ${answer.found.state}.`);
      last = answer.found.state;
    },
    onProblem: (error) => (last && error.status !== 404) || update(outlet, problem(error), aboutGone(error)),
  });
}

function aboutGone(error) {
  return error.status === 404 ? el("p", {}, el("a", { href: address(["pending"]) }, "The pending pods")) : null;
}

/** As a further replica would meet them, where the explanation has none: the pod has a node. Null where they are not to be had. */
async function constraints(namespace, name, found, signal) {
  if (isExplained(found)) return { constraints: found.constraints ?? [] };
  return optional(service.constraints(namespace, name, { signal }));
}

async function decisions(namespace, name, signal) {
  return optional(service.decisions({ query: { namespace, pod: name, limit: DECISIONS }, signal }));
}

async function optional(question) {
  try {
    return await question;
  } catch (error) {
    if (error instanceof Problem) return null;
    throw error;
  }
}

function draw({ found, constraints, decisions }, namespace, name, node) {
  const explained = isExplained(found);
  return [
    el("p", { class: "summary" }, badge(explained ? found.state : "not pending", KINDS[found.state] ?? "good"), ` ${verdict(found)}`),
    found.group ? el("p", { class: "note" }, `Held with its group ${found.group.group} of ${found.group.policy}, which is ${found.group.state}: ${found.group.text || found.group.reason}.`) : null,
    found.gates && !found.group ? el("p", { class: "note" }, `Held at scheduling gates: ${found.gates.join(", ")}.`) : null,
    ...(found.broken ?? []).map((text) => el("p", { class: "note" }, `Broken: ${text}.`)),
    found.move ? el("p", { class: "note" }, `${found.broken?.length ? "Move" : "Watched"}: ${found.move}.`) : null,
    found.rejection ? el("p", { class: "quote" }, "The scheduler says: ", found.rejection) : null,
    found.asked ? el("p", { class: "note" }, asking(found.asked.text)) : null,
    found.isChanged ? el("p", { class: "note" }, "The cluster changed while this was computed, so parts may not agree.") : null,
    found.unchecked ? el("p", { class: "note" }, `Not checked: ${found.unchecked}.`) : null,
    explained ? section("What rejects it", obstacleTable(found, `Rules that reject ${namespace}/${name}`)) : null,
    explained ? section("What would help", el("p", { class: "note" }, "Each was tried on the counts before it is named."), helps(found)) : null,
    explained ? section("One node", nodeField(namespace, name, node), found.node ? nodeReport(found.node) : null) : null,
    constraintSection(constraints, explained),
    policies(found.policies ?? []),
    decisions ? section("What was decided about it", decisionTable(decisions.decisions)) : null,
  ];
}

function nodeField(namespace, name, node) {
  const go = (chosen) => (location.hash = address(["pods", namespace, name], { node: chosen }));
  return field("Node", node, go, { hint: "name of a node" });
}

function constraintSection(found, explained) {
  const states = found?.constraints ?? [];
  if (!states.length) return null;
  const note = explained ? null : el("p", { class: "note" }, "As they are for one more replica of this pod.");
  return section("What its constraints count", note, constraintBars(states));
}

function policies(names) {
  if (!names.length) return null;
  return section("Scheduling policies that hold it", el("ul", { class: "plain" }, names.map((each) => el("li", {}, each))));
}

function decisionTable(rows) {
  if (!rows.length) return nothing("Nothing yet, or longer ago than the log remembers.");
  const columns = [
    { head: "Time", isName: true, cell: (each) => clock(each.time) },
    { head: "Verb", cell: (each) => each.verb },
    { head: "Nodes passed", isNumber: true, cell: (each) => `${count(each.passed)} of ${count(each.nodes)}` },
    { head: "Result", cell: (each) => outcome(each) },
  ];
  return table("The latest first", columns, rows, (each) => `${each.time} ${each.verb}`);
}

/** A decision's result in words. */
export function outcome(each) {
  if (each.error) return each.error;
  if (each.passed) return (each.suchAs ?? []).join(", ");
  return (each.reasons ?? []).map(reason).join("; ") || "no node passed";
}
