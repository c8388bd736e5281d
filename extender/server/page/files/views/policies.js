// Scheduling policies: what each directs, at which moments, and the pods that it selects now.

import { badge, el, nothing, problem, table, update } from "../dom.js";
import { podLinks } from "../constraint_bars.js";
import { poll, service } from "../fetching.js";
import { pager } from "../forms.js";
import { count, counted } from "../words.js";

const EVERY = 5000;

export function title() {
  return "Scheduling policies";
}

export function open({ query, outlet, signal }) {
  let isDrawn = false;
  return poll(() => service.policies({ query, signal }), {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      update(outlet, draw(found, query));
      isDrawn = true;
    },
    onProblem: (error) => isDrawn || update(outlet, problem(error)),
  });
}

function draw(found, query) {
  const rows = found.policies ?? [];
  if (!rows.length) return nothing("There is no scheduling policy, or policies are switched off.");
  const columns = [
    {
      head: "Policy",
      isName: true,
      cell: (each) => [each.namespace ? `${each.namespace}/` : "", each.name, el("p", { class: "under" }, each.kind)],
    },
    { head: "State", cell: (each) => [each.valid ? badge("valid", "good") : badge("invalid", "bad"), each.problem ? el("p", { class: "under" }, each.problem) : null] },
    { head: "Applied at", cell: (each) => [(each.moments ?? []).join(", ") || "–", each.mode ? el("p", { class: "under" }, each.mode) : null] },
    { head: "Directs", cell: (each) => el("ul", { class: "plain" }, (each.directives ?? []).map((text) => el("li", {}, text))) },
    { head: "Priority", isNumber: true, cell: (each) => count(each.priority) },
    { head: "Pods now", isNumber: true, cell: (each) => count(each.matched ?? 0) },
    { head: "Such as", cell: (each) => podLinks(each.examples ?? [], each.matched ?? 0) },
  ];
  if (rows.some((each) => each.domains)) columns.splice(4, 0, { head: "Domains, in order", cell: domains });
  const caption = `${counted(rows.length + (found.more ?? 0), "policy", "policies")}, and the pods that they select now`;
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
