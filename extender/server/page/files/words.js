// Numbers, times and reasons as people read them.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RULES = {
  InterPodAffinity: "pod affinity",
  PodTopologySpread: "topology spread",
  NodeFit: "node fit",
  FreeRoom: "free room",
  SchedulingPolicy: "scheduling policy",
  Limits: "limits",
  CrossNamespaceQuota: "quota across namespaces",
  ReleaseDomains: "domains of a release",
  ReservedRoom: "reserved room",
};
const REASONS = {
  spread_label_missing: "nodes lack the topology key of its spread constraint",
  spread_skew: "topology spread would be too uneven",
  affinity: "no pod that it must be near",
  domain_excluded: "nodes are in a topology domain that is excluded",
  anti_affinity: "pods that it must be apart from",
  existing_anti_affinity: "existing pods keep it away from them",
  cordoned: "nodes are cordoned",
  taint: "taints that it does not tolerate",
  node_affinity: "node selector or node affinity matches no node",
  policy: "a scheduling policy allows other nodes only",
  policy_conflict: "it contradicts a scheduling policy",
  policy_failed: "a scheduling policy cannot be applied to it",
  no_room: "too little free room",
  host_ports: "host ports that it needs are taken",
  release_domain: "its policy releases pods into other domains only",
  release_quota: "quotas of the domains are used up",
  reserved: "room is reserved for pods that start together",
  moved: "another node is kept for the replacement of a moved pod",
  nominated: "room is kept for nominated pods",
  preempting: "it waits until the pods that it preempts are gone",
  unknown_node: "nodes are not known yet",
  quota: "it is over a quota for affinity across namespaces",
  reach: "its affinity reaches further than allowed",
  over_limit: "its constraints are above a limit",
  over_budget: "its namespace has no budget for constraints left",
  not_tried: "the scheduler has not tried it yet",
  volumes: "its volumes",
  scheduler_error: "an error of the scheduler",
  other: "another reason",
  gated: "waits at a scheduling gate",
  assumed: "passed; its binding is awaited",
  terminating: "is being deleted",
  malformed_pod: "its constraints cannot be parsed",
};

/** 12345 as 12,345. */
export function count(number) {
  return NUMBER.format(number ?? 0);
}

/** A count with its noun: `1 node`, `2 nodes`. */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/** A rate: `0.4`, `12`, `1,200` per second. */
export function rate(perSecond) {
  const number = perSecond ?? 0;
  return number === 0 ? "0" : number < 10 ? number.toFixed(1) : count(Math.round(number));
}

/** Milliseconds: `0.42 ms`, `18 ms`, `1.2 s`. */
export function milliseconds(amount) {
  if (amount === null || amount === undefined) return "–";
  if (amount >= 1000) return `${(amount / 1000).toFixed(1)} s`;
  return `${amount >= 10 ? Math.round(amount) : amount.toPrecision(2)} ms`;
}

/** Bytes in binary units. */
export function bytes(amount) {
  let left = amount ?? 0;
  let unit = 0;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left < 10 && unit ? left.toFixed(1) : Math.round(left)} ${UNITS[unit]}`;
}

/** Milli-CPU as cores: `250m`, `1.5`, `64`. */
export function cpu(milli) {
  const amount = milli ?? 0;
  if (amount !== 0 && Math.abs(amount) < 1000) return `${amount}m`;
  return amount % 1000 && amount < 100_000 ? (amount / 1000).toFixed(1) : count(Math.round(amount / 1000));
}

/** A share as per cent. */
export function percent(share) {
  return `${Math.round(100 * (Number.isFinite(share) ? share : 0))} %`;
}

/** A duration: `4 s`, `3 min`, `2 h 10 min`, `5 d 3 h`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds ?? 0));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

/** How long ago a moment was, which is Unix seconds or RFC 3339. */
export function age(moment) {
  const seconds = typeof moment === "number" ? moment : Date.parse(moment) / 1000;
  return seconds > 0 ? duration(Date.now() / 1000 - seconds) : "–";
}

/** The time of day of a moment in Unix seconds, with milliseconds. */
export function clock(seconds) {
  const moment = new Date(seconds * 1000);
  return `${moment.toLocaleTimeString("en-GB")}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
}

/** The name of a rule in words. */
export function rule(name) {
  return RULES[name] ?? name;
}

/** A reason's label in words. */
export function reason(label) {
  return REASONS[label] ?? String(label).replaceAll("_", " ");
}

/** A value of a topology key: a label may be empty. What is not there stays so. */
export function shownDomain(value) {
  return value === "" ? '""' : value;
}

/** What schedulers have asked, as a note: the text may begin with a name. */
export function asking(text) {
  return `Schedulers: ${text}.`;
}
