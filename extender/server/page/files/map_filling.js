// Fills a map of nodes, a page of rows at a time, from the domains of a topology key and the nodes of each.

import { poll, service } from "./fetching.js";
import { count, counted, percent } from "./words.js";

const PAGE = 500; // the most rows that the service answers at once
const MOST_CELLS = 20_000;
const EVERY = 30_000;
const MOST_BLOCKS = 60; // with a name each
const HOSTNAME = "kubernetes.io/hostname";
const USUAL_KEY = "topology.kubernetes.io/zone";

/** What the colour of a cell may say, each with its words. */
export const COLOURS = [["matching", "pods that match"], ["cpu", "CPU requested"], ["memory", "memory requested"], ["pods", "pods"]];

/** The share of a resource that is requested: of a row of domains or of nodes. */
export function used(each, free, all) {
  return each[all] ? 1 - each[free] / each[all] : 0;
}

/** The key of a map for which none was chosen. */
export function usualKey(keys) {
  return keys.includes(USUAL_KEY) || !keys.length ? USUAL_KEY : keys[0];
}

/**
 * Fills the map, and again after a while. `chosen` is {key, namespace, selector, colour}. `tell(progress)` is called after
 * each page.
 */
export async function fill(map, chosen, signal, tell) {
  let loaded = false; // later pages then replace the map at once, instead of emptying it first
  const question = async () => {
    await load(map, chosen, signal, tell, loaded);
    loaded = true;
  };
  await poll(question, { every: EVERY, signal, onAnswer: () => {}, onProblem: (error) => tell(error.message) });
}

async function load(map, chosen, signal, tell, isLoaded) {
  const asked = { key: chosen.key, namespace: chosen.namespace, selector: chosen.selector, limit: PAGE };
  const domains = [];
  for await (const row of pages(asked, "domains", signal)) domains.push(row);
  const isByNode = domains.every((each) => each.nodes === 1) && (chosen.key === HOSTNAME || domains.length > MOST_BLOCKS);
  const blocks = isByNode ? [{ name: "", rows: domains.map((each) => ({ ...each, node: each.domain })) }] : domains.map((each) => ({ name: each.domain, rows: [] }));
  const show = () => {
    const rows = blocks.flatMap((block) => block.rows);
    const most = Math.max(1, ...rows.map((each) => (chosen.colour === "pods" ? each.pods : each.matching)));
    const about = `Map of ${counted(domains.length, "domain")} with ${counted(rows.length, "node")}, coloured by ${COLOURS.find(([one]) => one === chosen.colour)?.[1]}. The table below has the figures.`;
    map.show(blocks.map((block) => ({ name: block.name, cells: block.rows.map((row) => cellOf(row, chosen.colour, most)) })), about);
    const all = domains.reduce((sum, each) => sum + each.nodes, 0);
    tell(rows.length < all ? `${count(rows.length)} of ${counted(all, "node")} on the map.` : "");
  };
  const meanwhile = isLoaded ? () => {} : show;
  if (isByNode) return show();
  meanwhile();
  let cells = 0;
  for (const block of blocks) {
    for await (const row of pages({ ...asked, domain: block.name }, "nodes", signal, meanwhile)) {
      block.rows.push(row);
      cells += 1;
      if (cells >= MOST_CELLS) return show();
    }
    meanwhile();
  }
  show();
}

/** The rows of all pages. `between()` is called after each. */
async function* pages(asked, name, signal, between = () => {}) {
  let after = "";
  do {
    const found = await service.topology({ query: { ...asked, after }, signal });
    yield* found[name] ?? [];
    between();
    after = found.next ?? "";
  } while (after && !signal.aborted);
}

function cellOf(row, colour, most) {
  const cordoned = row.unschedulable ? ", cordoned" : "";
  const cpu = used(row, "freeMilliCpu", "allocatableMilliCpu");
  const memory = used(row, "freeMemory", "allocatableMemory");
  const text = `${row.node}${cordoned}: ${counted(row.pods, "pod")}, ${count(row.matching)} match, CPU ${percent(cpu)}, memory ${percent(memory)} requested`;
  const values = { matching: row.matching / most, pods: row.pods / most, cpu, memory };
  const marks = { matching: row.matching, pods: row.pods };
  return { name: row.node, value: values[colour] ?? 0, mark: marks[colour] ? String(marks[colour]) : "", text, isCordoned: Boolean(row.unschedulable) };
}
