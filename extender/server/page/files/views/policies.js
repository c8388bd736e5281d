// Scheduling policies: what each directs, at which moments, and the pods that it selects now; and a page of one policy.

import { badge, bar, el, nothing, problem, section, table, update } from "../dom.js";
import { podLinks } from "../constraint_bars.js";
import { poll, Problem, service } from "../fetching.js";
import { pager } from "../forms.js";
import { address } from "../routing.js";
import { count, counted } from "../words.js";

const EVERY = 5000;

const MOST = 500;
const CLUSTER = "-"; // in an address, in place of a namespace

export function title([, kind, namespace = "", name = ""]) {
  if (!kind) return "Scheduling policies";
  return `${kind} ${namespace === CLUSTER ? "" : `${namespace}/`}${name}`;
}

/** All policies; with the kind, the namespace and the name of one in the address, this one. */
export function open({ parts: [, kind, namespace, name], query, outlet, signal }) {
  let isDrawn = false;
  const chosen = { kind, namespace: namespace === CLUSTER ? "" : namespace, name };
  const question = kind ? () => one(chosen, signal) : () => service.policies({ query, signal });
  return poll(question, {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      update(outlet, kind ? drawOne(found) : draw(found, query));
      isDrawn = true;
    },
    onProblem: (error) => isDrawn || update(outlet, problem(error)),
  });
}

/** A policy and its groups. Raises Problem where there is no such policy. */
async function one({ kind, namespace, name }, signal) {
  for (let after = ""; ; ) {
    const found = await service.policies({ query: { namespace, after, limit: MOST }, signal });
    const policy = (found.policies ?? []).find((each) => each.kind === kind && each.name === name && (each.namespace ?? "") === namespace);
    if (policy) return { policy, groups: await groupsOf(policy, signal) };
    if (!found.next) throw new Problem(`${kind} ${namespace ? `${namespace}/` : ""}${name} is not known, or policies are switched off.`, 404);
    after = found.next;
  }
}

async function groupsOf(policy, signal) {
  const found = await service.groups({ query: { namespace: policy.namespace, limit: MOST }, signal });
  const own = [policy.kind, policy.namespace, policy.name].filter(Boolean).join("/");
  return (found.groups ?? []).filter((each) => each.policy === own);
}

function drawOne({ policy, groups }) {
  const facts = [
    ["Applied at", (policy.moments ?? []).join(", ") || "–"],
    ["Mode", policy.mode],
    ["Priority", count(policy.priority)],
    ["Pods now", count(policy.matched ?? 0)],
  ];
  const directives = policy.directives ?? [];
  return [
    el("p", { class: "summary" }, policy.valid ? badge("valid", "good") : badge("invalid", "bad"), policy.valid ? " It is applied." : " It is not applied."),
    policy.problem ? el("p", { class: "quote" }, policy.problem) : null,
    el("dl", { class: "about" }, facts.filter(([, value]) => value).map(([head, value]) => el("div", {}, el("dt", {}, head), el("dd", {}, value)))),
    section("What it directs", directives.length ? el("ul", { class: "plain" }, directives.map((text) => el("li", {}, text))) : nothing("Nothing.")),
    policy.domains ? section("Its domains, in order", domains(policy)) : null,
    section("Pods that it selects now", policy.matched ? selected(policy) : nothing("None.")),
    groups.length ? section("Its groups that wait or start", groupTable(groups)) : null,
    el("p", {}, el("a", { href: address(["policies"]) }, "All policies")),
  ];
}

/** How many pods it selects, with some of them: of pods without a node there are no examples. */
function selected({ matched, examples = [] }) {
  return el("p", {}, counted(matched, "pod"), examples.length ? [": ", podLinks(examples, matched)] : ".");
}

function groupTable(groups) {
  const wanted = (each) => Math.max(1, each.needed, each.pods);
  const columns = [
    { head: "Group", isName: true, cell: (each) => `${each.namespace} ${each.key ?? ""}` },
    { head: "State", cell: (each) => [badge(each.state), el("p", { class: "under" }, each.text ?? "")] },
    { head: "Bound", cell: (each) => bar(each.bound / wanted(each), `${count(each.bound)} of ${count(wanted(each))}`, "good") },
  ];
  return table("Pods that start together", columns, groups, (each) => `${each.namespace} ${each.key}`);
}

function draw(found, query) {
  const rows = found.policies ?? [];
  if (!rows.length) return nothing("There is no scheduling policy, or policies are switched off.");
  const columns = [
    {
      head: "Policy",
      isName: true,
      cell: (each) => [
        el("a", { href: address(["policies", each.kind, each.namespace || CLUSTER, each.name]) }, `${each.namespace ? `${each.namespace}/` : ""}${each.name}`),
        el("p", { class: "under" }, each.kind),
      ],
    },
    { head: "State", cell: (each) => [each.valid ? badge("valid", "good") : badge("invalid", "bad"), each.problem ? el("p", { class: "under" }, each.problem) : null] },
    { head: "Applied at", cell: (each) => [(each.moments ?? []).join(", ") || "–", each.mode ? el("p", { class: "under" }, each.mode) : null] },
    { head: "Directs", cell: (each) => el("ul", { class: "plain" }, (each.directives ?? []).map((text) => el("li", {}, text))) },
    { head: "Priority", isNumber: true, cell: (each) => count(each.priority) },
    { head: "Pods now", isNumber: true, cell: (each) => count(each.matched ?? 0) },
    { head: "Such as", cell: (each) => (each.examples ? podLinks(each.examples, each.matched ?? 0) : "–") },
  ];
  if (rows.some((each) => each.domains)) columns.splice(4, 0, { head: "Domains, in order", cell: domains });
  const all = rows.length + (found.more ?? 0);
  const caption = `${counted(all, "policy", "policies")}, and the pods that ${all === 1 ? "it selects" : "they select"} now`;
  return [table(caption, columns, rows, (each) => `${each.kind} ${each.namespace ?? ""} ${each.name}`), pager(found, ["policies"], query)];
}

/** What pods have of each domain, and may have. */
function domains(policy) {
  const rows = policy.domains ?? [];
  if (!rows.length) return "–";
  const items = rows.map((each) => el("li", {}, `${each.name}: ${each.amounts.map(amount).join(", ")}${each.mayGrow ? ", may grow" : ""}`));
  return [el("ol", { class: "plain" }, items), policy.moreDomains ? el("p", { class: "under" }, `and ${count(policy.moreDomains)} more`) : null];
}

function amount({ resource, used, quota }) {
  return `${quota ? `${used} of ${quota}` : used} ${resource}`;
}
