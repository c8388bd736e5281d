// What is under way: preemptions, groups of gated pods that start together, and moves of running pods.

import { badge, bar, el, nothing, problem, section, table, update } from "../dom.js";
import { podLinks } from "../constraint_bars.js";
import { poll, Problem, service } from "../fetching.js";
import { age, count, counted } from "../words.js";

const EVERY = 2000;

export function title() {
  return "Preemptions, groups and moves";
}

export function open({ outlet, signal, say }) {
  let last = "";
  const question = async () => {
    const preemptions = await service.preemptions({ signal });
    return { preemptions, groups: await service.groups({ signal }), moves: await moves(signal) };
  };
  return poll(question, {
    every: EVERY,
    signal,
    onAnswer: ({ preemptions, groups, moves }) => {
      update(outlet, draw(preemptions, groups, moves));
      const now = `${counted(preemptions.preemptions.length, "preemption")} and ${counted(groups.groups.length, "group")} in flight.`;
      if (last && now !== last) say(now);
      last = now;
    },
    onProblem: (error) => last || update(outlet, problem(error)),
  });
}

/** Null where no constraints of running pods are watched. */
async function moves(signal) {
  try {
    return await service.moves({ signal });
  } catch (error) {
    if (error instanceof Problem) return null;
    throw error;
  }
}

function draw(preemptions, groups, moves) {
  return [
    section("Preemptions", preemptionTable(preemptions)),
    section("Groups of gated pods", groupTable(groups)),
    moves ? section("Broken constraints of running pods", moveTable(moves)) : null,
  ];
}

function preemptionTable(found) {
  const rows = found.preemptions ?? [];
  if (!rows.length) return nothing("No pod is preempted now.");
  const columns = [
    { head: "For the pod", isName: true, cell: (each) => podLinks([each.pod]) },
    { head: "On node", isShort: true, cell: (each) => each.node },
    { head: "State", cell: (each) => [badge(each.state), violations(each)] },
    { head: "Priority", isNumber: true, cell: (each) => count(each.priority) },
    { head: "For", isNumber: true, cell: (each) => age(each.since) },
    {
      head: "Pods that end",
      cell: (each) => [
        el("ul", { class: "plain" }, (each.victims ?? []).map((one) => el("li", {}, podLinks([one.pod]), ` ${one.state}`))),
        each.moreVictims ? el("p", { class: "under" }, `and ${count(each.moreVictims)} more`) : null,
      ],
    },
  ];
  return [table("Pods of lower priority end, so that another one has room", columns, rows, (each) => each.pod), more(found)];
}

function violations(each) {
  return each.pdbViolations ? el("p", { class: "under" }, `violates ${counted(each.pdbViolations, "disruption budget")}`) : null;
}

function groupTable(found) {
  const rows = found.groups ?? [];
  if (!rows.length) return nothing("No group of gated pods waits or starts.");
  const columns = [
    { head: "Group", isName: true, cell: (each) => [`${each.namespace} ${each.key ?? ""}`, el("p", { class: "under" }, each.policy)] },
    { head: "State", cell: (each) => [badge(each.state), el("p", { class: "under" }, each.text ?? "")] },
    { head: "For", isNumber: true, cell: (each) => (each.since ? age(each.since) : "–") },
    { head: "Domain", cell: (each) => each.domain || "–" },
    { head: "Pods", cell: (each) => bar(each.pods / wanted(each), `${count(each.pods)} of ${count(wanted(each))}`) },
    { head: "Released", cell: (each) => bar(each.released / wanted(each), count(each.released)) },
    { head: "Bound", cell: (each) => bar(each.bound / wanted(each), count(each.bound), "good") },
  ];
  return [table("Pods that start together, and how far they are", columns, rows, (each) => `${each.policy} ${each.namespace} ${each.key}`), more(found)];
}

function moveTable(found) {
  const rows = [...(found.moves ?? []), ...(found.stuck ?? [])];
  const notes = (found.notes ?? []).map((text) => el("p", { class: "note" }, text));
  if (!rows.length) return notes.length ? notes : nothing("No watched constraint is broken.");
  const columns = [
    { head: "Pod", isName: true, cell: (each) => [podLinks([each.pod]), el("p", { class: "under" }, each.policy)] },
    { head: "What is broken", cell: (each) => each.broken },
    { head: "For", isNumber: true, cell: (each) => (each.since ? age(each.since) : "–") },
    { head: "On node", isShort: true, cell: (each) => each.source },
    { head: "Moves to", isShort: true, cell: (each) => each.target || "–" },
    { head: "State", cell: (each) => [badge(STATES[each.state] ?? each.state), el("p", { class: "under" }, each.why ?? "")] },
  ];
  const caption = "Required constraints that no longer hold, and the moves that mend them";
  return [table(caption, columns, rows, (each) => `${each.pod} ${each.constraint} ${each.broken}`), ...notes];
}

const STATES = { underWay: "under way" };

/** How many pods the group is to have: as many as it has where they do not tell. */
function wanted(each) {
  return Math.max(1, each.needed, each.pods);
}

function more(found) {
  return found.more ? el("p", { class: "note" }, `${count(found.more)} more are not shown.`) : null;
}
