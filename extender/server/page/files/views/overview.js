// The overview: health in words, how fast answers are, and what the index holds.

import { badge, el, nothing, section, table, update, problem } from "../dom.js";
import { poll, service } from "../fetching.js";
import { address } from "../routing.js";
import { bytes, count, counted, duration, milliseconds, rate } from "../words.js";

const EVERY = 3000;
const KINDS = { ok: "good", warning: "warning", failing: "bad" };

export function title() {
  return "Overview";
}

export function open({ outlet, signal, say }) {
  let last = "";
  return poll(() => service.overview({ signal }), {
    every: EVERY,
    signal,
    onAnswer: (found) => {
      update(outlet, draw(found));
      const health = summary(found);
      if (last && last !== health) say(health);
      last = health;
    },
    onProblem: (error) => last || update(outlet, problem(error)),
  });
}

function draw(found) {
  return [
    section("Health", healthList(found)),
    section("In the cluster", figures(found)),
    found.shadow ? section("Compared with kube-scheduler's own plugins", shadow(found.shadow)) : null,
    section("Answers to the scheduler, over the last minute", verbs(found.verbs ?? [])),
    section("Topology keys", keys(found.topologyKeys ?? [], found.moreKeys)),
    section("This service", about(found)),
  ];
}

function summary(found) {
  const bad = (found.health ?? []).filter((each) => each.status !== "ok");
  if (bad.length) return `${counted(bad.length, "check")} of ${count(found.health.length)} need attention.`;
  return found.ready ? "Everything is in order." : "This replica does not answer now.";
}

function healthList(found) {
  const checks = found.health ?? [];
  const passing = checks.filter((each) => each.status === "ok");
  const others = checks.filter((each) => each.status !== "ok");
  others.sort((one, other) => one.status.localeCompare(other.status)); // failing before warning
  return [
    el("p", { class: "summary" }, badge(found.ready ? "ready" : "not ready", found.ready ? "good" : "bad"), ` ${summary(found)}`),
    list(others),
    passing.length ? el("details", { "data-key": "passing" }, el("summary", {}, `${counted(passing.length, "check")} passed`), list(passing)) : null,
  ];
}

function list(checks) {
  return el(
    "ul",
    { class: "checks" },
    checks.map((each) =>
      el("li", { "data-key": each.check }, badge(each.status, KINDS[each.status]), el("strong", {}, ` ${each.check}`), each.text === "ok" ? "" : `: ${each.text}`),
    ),
  );
}

function figures(found) {
  const shown = [
    ["Pending", count(found.pending), address(["pending"])],
    ["Nodes", count(found.nodes), address(["topology"], { key: "kubernetes.io/hostname" })],
    ["Pods", count(found.pods), address(["constraints"])],
    ["Namespaces", count(found.namespaces)],
    ["Gated", count(found.gated), address(["pending"])],
    ["Assumed", count(found.assumed)],
    ["Preemptions in flight", count(found.preemptionsInFlight), address(["flight"])],
    ["Groups in flight", count(found.groupsInFlight), address(["flight"])],
    ["Policies", `${count(found.policies)}${found.invalidPolicies ? ` + ${count(found.invalidPolicies)} invalid` : ""}`, address(["policies"])],
  ];
  return el(
    "dl",
    { class: "figures" },
    shown.map(([name, value, link]) =>
      el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, link ? el("a", { href: link }, value) : value)),
    ),
  );
}

function shadow(found) {
  const rows = found.differences ?? [];
  const columns = [
    { head: "Pod", isName: true, cell: (each) => `${each.namespace}/${each.pod}` },
    { head: "Node", cell: (each) => each.node ?? "" },
    { head: "Rule", cell: (each) => each.rule },
    { head: "Reason", cell: (each) => each.text },
    { head: "The plugins", cell: (each) => decided(each) },
    { head: "The extender", cell: (each) => wouldDecide(each) },
  ];
  const some = `${counted(found.compared, "decision")} compared, ${count(found.differ)} ${found.differ === 1 ? "differs" : "differ"}, ${count(found.open)} still open.`;
  return [
    el("p", { class: "summary" }, badge(found.differ ? "differs" : "agrees", found.differ ? "bad" : "good"), ` ${some}`),
    rows.length ? table("The last decisions that differ", columns, rows, (each) => `${each.time} ${each.uid} ${each.reason}`) : null,
  ];
}

function decided(each) {
  if (each.source === "condition") return `rejected ${counted(each.nodes, "node")}`;
  return each.confirmed ? "bound the pod there" : "let it pass, as a request says";
}

function wouldDecide(each) {
  if (each.source === "condition") return `rejects ${each.least === each.most ? count(each.most) : `${count(each.least)} to ${count(each.most)}`}`;
  const where = each.domain ? ` in ${each.domain}` : "";
  return each.limit === undefined || each.limit === null ? `rejects it${where}` : `rejects it${where}: ${count(each.count ?? 0)} counted, at most ${count(each.limit)}`;
}

function verbs(rows) {
  if (!rows.length) return nothing("The scheduler has sent no request yet.");
  const columns = [
    { head: "Verb", isName: true, cell: (each) => each.verb },
    { head: "Per second", isNumber: true, cell: (each) => rate(each.perSecond) },
    { head: "Half within", isNumber: true, cell: (each) => milliseconds(each.answers ? each.p50Milliseconds : null) },
    { head: "99 % within", isNumber: true, cell: (each) => milliseconds(each.answers ? each.p99Milliseconds : null) },
    { head: "Errors", isNumber: true, cell: (each) => count(each.errors) },
  ];
  return table("Rates and latency by verb", columns, rows, (each) => each.verb, { isNarrow: true });
}

function keys(rows, more) {
  if (!rows.length) return nothing("No node has labels.");
  const columns = [
    { head: "Key", isName: true, cell: (each) => el("a", { href: address(["topology"], { key: each.key }) }, each.key) },
    { head: "Domains", isNumber: true, cell: (each) => count(each.domains) },
    { head: "Nodes", isNumber: true, cell: (each) => count(each.nodes) },
  ];
  return [
    table("Label keys of nodes, by which pods can be spread or kept together", columns, rows, (each) => each.key, { isNarrow: true }),
    more ? el("p", { class: "note" }, `${count(more)} more keys are not shown.`) : null,
  ];
}

function about(found) {
  const features = found.features ?? {};
  const rows = [
    ["Version", found.version],
    ["Mode", `${found.mode}, placement ${found.placement}`],
    ["Replica", found.leader ? "leader: it writes" : "standby: it answers, and another replica writes"],
    ["Running for", duration(found.uptimeSeconds)],
    ["Last heard of the cluster", heard(found)],
    ["Memory", bytes(found.residentBytes)],
    ["Preemption", features.preemption],
    ["Scheduling policies", features.policies ? "on" : "off"],
    ["Quotas", features.quotas ? "on" : "off"],
  ];
  return el(
    "dl",
    { class: "about" },
    rows.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

function heard(found) {
  const seconds = found.freshnessSeconds;
  return seconds === undefined || seconds === null ? "it answers from a snapshot" : `${duration(seconds)} ago`;
}
