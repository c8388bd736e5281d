// The overview: health in words, how fast answers are, and what the index holds.

import { badge, el, nothing, section, table, update, problem } from "../dom.js";
import { ask, endpoint, poll } from "../fetching.js";
import { address } from "../routing.js";
import { bytes, count, counted, duration, milliseconds, rate } from "../words.js";

const EVERY = 3000;
const KINDS = { ok: "good", warning: "warning", failing: "bad" };

export function title() {
  return "Overview";
}

export function open({ outlet, signal, say }) {
  let last = "";
  return poll(() => ask(endpoint("overview"), { signal }), {
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
    section("Answers to the scheduler, over the last minute", verbs(found.verbs ?? [])),
    section("Topology keys", keys(found.topologyKeys ?? [])),
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
  const order = ["failing", "warning", "ok"];
  const sorted = [...checks].sort((one, other) => order.indexOf(one.status) - order.indexOf(other.status));
  return [
    el("p", { class: "summary" }, summary(found)),
    el(
      "ul",
      { class: "checks" },
      sorted.map((each) =>
        el("li", { "data-key": each.check }, badge(each.status, KINDS[each.status]), el("strong", {}, ` ${each.check} `), each.text),
      ),
    ),
  ];
}

function figures(found) {
  const shown = [
    ["Nodes", count(found.nodes), address(["topology"], { key: "kubernetes.io/hostname" })],
    ["Pods", count(found.pods), address(["constraints"])],
    ["Namespaces", count(found.namespaces)],
    ["Pending", count(found.pending), address(["pending"])],
    ["Gated", count(found.gated), address(["pending"])],
    ["Assumed", count(found.assumed)],
    ["Preemptions in flight", count(found.preemptionsInFlight), address(["flight"])],
    ["Groups in flight", count(found.groupsInFlight), address(["flight"])],
    ["Policies", count(found.policies), address(["policies"])],
  ];
  return el(
    "dl",
    { class: "figures" },
    shown.map(([name, value, link]) =>
      el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, link ? el("a", { href: link }, value) : value)),
    ),
  );
}

function verbs(rows) {
  if (!rows.length) return nothing("The scheduler has not asked yet.");
  const columns = [
    { head: "Verb", isName: true, cell: (each) => each.verb },
    { head: "Per second", isNumber: true, cell: (each) => rate(each.perSecond) },
    { head: "Half within", isNumber: true, cell: (each) => milliseconds(each.p50Milliseconds) },
    { head: "99 % within", isNumber: true, cell: (each) => milliseconds(each.p99Milliseconds) },
    { head: "Errors", isNumber: true, cell: (each) => count(each.errors) },
  ];
  return table("Rates and latency by verb", columns, rows, (each) => each.verb);
}

function keys(rows) {
  if (!rows.length) return nothing("No pod counts by a topology key yet.");
  const columns = [
    { head: "Key", isName: true, cell: (each) => el("a", { href: address(["topology"], { key: each.key }) }, each.key) },
    { head: "Domains", isNumber: true, cell: (each) => count(each.domains) },
    { head: "Nodes", isNumber: true, cell: (each) => count(each.nodes) },
  ];
  return table("Topology keys that nodes have", columns, rows, (each) => each.key);
}

function about(found) {
  const features = found.features ?? {};
  const rows = [
    ["Version", found.version],
    ["Mode", `${found.mode}, placement ${found.placement}`],
    ["Replica", found.leader ? "leader: it writes" : "standby: it answers, and another replica writes"],
    ["Running for", duration(found.uptimeSeconds)],
    ["Data as of", found.freshnessSeconds ? `${duration(found.freshnessSeconds)} ago` : "now"],
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
