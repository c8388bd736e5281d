// An explanation in words: the verdict, what rejects the pod, and what would help.

import { badge, el, nothing, table } from "./dom.js";
import { address } from "./routing.js";
import { podLinks } from "./constraint_bars.js";
import { count, counted, reason, rule, shownDomain } from "./words.js";

const HELPS = {
  addNode: "one more node",
  uncordonNode: "uncordon a node",
  removeTaints: "remove taints",
  labelNode: "label a node",
  movePod: "move a pod",
  labelNamespace: "label a namespace",
  deletePods: "delete pods",
  addRoom: "more room",
  changeConstraint: "change a constraint",
};

/** One sentence about the state of the pod. */
export function verdict(found) {
  if (!isExplained(found)) return `This pod is ${found.state}.`;
  const fitting = found.fitting ? `${count(found.fitting)} would take it` : "none would take it";
  const passing = `${count(found.passing)} of ${counted(found.nodes, "node")} pass the rules of the extender, and ${fitting}.`;
  return found.preempting ? `${passing} Pods are preempted for it on ${found.preempting}.` : passing;
}

/** Whether it says more than where the pod is: a pod that is placed has no obstacles. */
export function isExplained(found) {
  return found.state === "pending" || found.state === "does not exist" || (found.obstacles ?? []).length > 0;
}

/** The obstacles that decide, those on most nodes first, each in a line. */
export function causes(found, most = 3) {
  const shown = sorted(found.obstacles ?? []).slice(0, most);
  if (!shown.length) return [nothing(found.fitting ? "Nothing rejects it now." : "No rule rejects it by itself.")];
  return shown.map((each) =>
    el(
      "p",
      { class: "cause" },
      el("strong", {}, capital(reason(each.reason))),
      ` on ${count(each.nodes ?? 1)} of ${counted(found.nodes, "node")}`,
      because(each) ? [": ", el("span", { class: "because" }, because(each))] : "",
    ),
  );
}

function sorted(obstacles) {
  return [...obstacles].sort((one, other) => (other.nodes ?? 1) - (one.nodes ?? 1));
}

function because(each) {
  const blamed = (each.blamed ?? []).join(", ");
  return blamed || (each.topologyKey ? `by ${each.topologyKey}` : "");
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The changes that were tried and let the pod pass, each in a line. */
export function helps(found) {
  const changes = found.changes ?? [];
  if (!changes.length) return [nothing("No single change that was tried helps.")];
  return changes.map((each) =>
    el("p", { class: "help" }, badge(HELPS[each.kind] ?? each.kind, "good"), ` ${each.text}`, disruption(each), tryIt(each)),
  );
}

/** A link to What if with this change; nothing for a change that a what-if cannot express. */
function tryIt(change) {
  const edit = editOf(change);
  if (!edit) return "";
  return [" ", el("a", { href: address(["whatif"], { edits: JSON.stringify([edit]) }), "aria-label": `What if: ${change.text}` }, "What if")];
}

/** The change as an edit of the view What if; see `edits.js`. */
function editOf({ kind, node, like, labels = {}, removedLabels: removed = [], taints, namespace, pods, room }) {
  if (kind === "addNode") return { do: "add", like, count: 1, labels };
  if (kind === "uncordonNode") return { do: "uncordon", node };
  if (kind === "removeTaints") return { do: "untaint", node, taints };
  if (kind === "labelNode") return { do: "label", kind: "Node", name: node, labels, removed };
  if (kind === "labelNamespace") return { do: "label", kind: "Namespace", name: namespace, labels, removed };
  if (kind === "deletePods") return { do: "delete", pods };
  return kind === "addRoom" ? { do: "room", node, room } : null;
}

function disruption(change) {
  return change.pdbViolations ? ` (violates disruption budgets for ${count(change.pdbViolations)} of the pods)` : "";
}

/** All obstacles with the nodes where they are. */
export function obstacleTable(found, caption) {
  if (!(found.obstacles ?? []).length) return nothing("No rule rejects any node.");
  const columns = [
    { head: "Rule", isName: true, cell: (each) => rule(each.rule) },
    { head: "Nodes", isNumber: true, cell: (each) => count(each.nodes ?? 1) },
    { head: "Reason", cell: (each) => [capital(reason(each.reason)), el("span", { class: "quote" }, each.text)] },
    { head: "Because of", cell: (each) => because(each) || "–" },
    { head: "Such as", cell: (each) => nodesSuchAs(each) },
  ];
  return table(caption, columns, sorted(found.obstacles), (each) => `${each.rule} ${each.reason} ${because(each)}`);
}

function nodesSuchAs(each) {
  const names = each.examples ?? [];
  const more = (each.nodes ?? 1) - names.length;
  return names.length ? names.join(", ") + (more > 0 ? ` and ${count(more)} more` : "") : "–";
}

/** What stands in the way on one node. */
export function nodeReport(node) {
  if (!node.obstacles?.length) return el("p", {}, badge("passes", "good"), ` ${node.name} would take the pod.`);
  return el(
    "ul",
    { class: "plain" },
    node.obstacles.map((each) =>
      el("li", {}, badge(rule(each.rule), "bad"), ` ${capital(reason(each.reason))}`, parts(each), blamedPods(each)),
    ),
  );
}

function parts(each) {
  const found = [];
  if (each.topologyKey) found.push(`${each.topologyKey} ${shownDomain(each.domain) ?? "is missing"}`);
  if (each.limit !== undefined && each.limit !== null) found.push(`${count(each.count)} counted, ${count(each.limit)} would pass`);
  return found.length ? ` (${found.join("; ")})` : "";
}

function blamedPods(each) {
  const blamed = each.blamed ?? [];
  if (!blamed.length) return "";
  const arePods = each.rule === "InterPodAffinity" && blamed.every((name) => /^[^/=:\s]+\/[^/=:\s]+$/.test(name));
  return [": ", arePods ? podLinks(blamed) : blamed.join(", ")];
}
