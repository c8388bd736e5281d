// Changes of a cluster that What if tries, and the body of the question for them.
//
// A change is an edit, small enough for an address: `{do: "add", like, count, labels}`, `{do: "label", kind, name, labels, removed}`,
// `{do: "uncordon", node}`, `{do: "untaint", node, taints}`, `{do: "room", node, room}`, `{do: "domain", key, domain}`,
// `{do: "delete", pods}`, and `{do: "object", object}` for an object as a whole.

import { Problem, service } from "./fetching.js";
import { count, counted } from "./words.js";

const PAGE = 500; // rows that the service answers at once
const MOST_ADDED = 100;
const HOSTNAME = "kubernetes.io/hostname";

/** The edits of an address; none where they cannot be read. */
export function editsOf(text) {
  try {
    const found = JSON.parse(text || "[]");
    return Array.isArray(found) ? found.filter(isReadable) : [];
  } catch {
    return []; // typed by hand
  }
}

function isReadable(edit) {
  if (!Object.hasOwn(IN_WORDS, edit?.do)) return false;
  try {
    return inWords(edit) !== "";
  } catch {
    return false;
  }
}

const IN_WORDS = {
  add: ({ like, count: number, labels }) => `${counted(number, "more node", "more nodes")} like ${like}${pairs(labels) && `, with ${pairs(labels)}`}`,
  label: ({ kind, name, labels, removed }) => [`${kind.toLowerCase()} ${name}:`, pairs(labels), ...list(removed).map((key) => `without ${key}`)].filter(Boolean).join(" "),
  uncordon: ({ node }) => `${node} is not cordoned`,
  untaint: ({ node, taints }) => `${node} without ${list(taints).join(", ")}`,
  room: ({ node, room }) => `more room on ${node}: ${Object.keys(room ?? {}).join(", ")}`,
  domain: ({ key, domain }) => `all nodes with ${key}=${domain}`,
  delete: ({ pods }) => `without ${list(pods).length > 3 ? counted(list(pods).length, "pod") : list(pods).join(", ")}`,
  object: ({ object: { kind, metadata } }) => `${kind} ${[metadata.namespace, metadata.name].filter(Boolean).join("/")}`,
};

/** An edit as a reader would say it. */
export function inWords(edit) {
  return IN_WORDS[edit.do](edit);
}

function pairs(labels) {
  return Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`).join(",");
}

function list(value) {
  return Array.isArray(value) ? value.map(String) : [];
}

/** Labels to set and to remove, in kubectl's notation: `a=b,c-`. Null where it is none. */
export function labelChanges(text) {
  const found = { labels: {}, removed: [] };
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const [key, value] = part.split(/=(.*)/s);
    if (value !== undefined && key) found.labels[key] = value;
    else if (part.endsWith("-") && part.length > 1) found.removed.push(part.slice(0, -1));
    else return null;
  }
  return found;
}

/** The parts of the question for these edits: what is applied, which pods are deleted, and the nodes of domains that are away. */
export async function resolved(edits, signal) {
  const changed = new Map(); // manifests, by kind and name: several edits may be about one object
  const added = [];
  const deleted = [];
  const nodes = [];
  const manifest = async (kind, name) => {
    const key = `${kind}/${name}`;
    if (!changed.has(key)) changed.set(key, await service.manifest(kind, name, { signal }));
    return changed.get(key);
  };
  const actions = {
    add: async (edit) => added.push(...(await newNodes(edit, signal))),
    label: async ({ kind, name, labels, removed }) => {
      const found = (await manifest(kind, name)).metadata.labels;
      for (const key of list(removed)) delete found[key];
      Object.assign(found, labels);
    },
    uncordon: async ({ node }) => {
      const found = (await manifest("Node", node)).spec;
      found.unschedulable = false;
      found.taints = found.taints.filter((each) => each.key !== "node.kubernetes.io/unschedulable");
    },
    untaint: async ({ node, taints }) => {
      const found = (await manifest("Node", node)).spec;
      found.taints = found.taints.filter((each) => !list(taints).includes(`${each.key}=${each.value}:${each.effect}`));
    },
    room: async ({ node, room }) => {
      const found = (await manifest("Node", node)).status.allocatable;
      for (const [resource, amount] of Object.entries(room ?? {})) found[resource] = more(found[resource], amount);
    },
    domain: async (edit) => nodes.push(...(await nodesOf(edit, signal))),
    delete: async ({ pods }) => deleted.push(...list(pods).map((each) => ({ kind: "Pod", namespace: each.split("/")[0], name: each.split("/")[1] ?? "" }))),
    object: async ({ object }) => added.push(object),
  };
  for (const edit of edits) await actions[edit.do](edit);
  return { apply: [...changed.values(), ...added], delete: deleted, nodes };
}

/** An amount of a manifest and some more: milli-CPU end with `m`. */
function more(amount = "0", missing) {
  return amount.endsWith("m") ? `${parseInt(amount, 10) + missing}m` : String(Number(amount) + missing);
}

async function newNodes({ like, count: number, labels }, signal) {
  if (number > MOST_ADDED) throw new Problem(`At most ${count(MOST_ADDED)} nodes are added at once.`);
  const found = await service.manifest("Node", like, { signal });
  return Array.from({ length: number }, (_, at) => {
    const name = `new-${at + 1}-like-${like}`;
    const given = { ...found.metadata.labels, [HOSTNAME]: name, ...labels };
    return { ...found, metadata: { name, labels: given }, spec: { ...found.spec, unschedulable: false } };
  });
}

async function nodesOf({ key, domain }, signal) {
  const names = [];
  let after = "";
  do {
    const found = await service.topology({ query: { key, domain, after, limit: PAGE }, signal });
    names.push(...(found.nodes ?? []).map((each) => each.node));
    after = found.next ?? "";
  } while (after);
  return names;
}
