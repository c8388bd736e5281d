// Asks the service, says in words what went wrong, and asks again: never from a hidden tab, and more slowly when refused.

const WORDS = {
  401: "The service wants a client certificate, and this browser has shown none.",
  403: "This client may not read the cluster here: it needs a client certificate with the role admin, or to be on the service's machine.",
  413: "The answer would cost the service more than it may spend on one question. Ask about less.",
  429: "The service is answering as many questions as it may. The page asks again in a moment.",
  502: "The service cannot be reached from the proxy.",
  503: "This replica does not answer now.",
  504: "The service had no time to answer.",
};
const ASKED_LATER = new Set([429, 502, 503, 504]);
const LOST = new Set([0, 502, 503]); // another refusal is an answer
const TIMEOUT = 15_000;
const LONGEST_WAIT = 30_000;

/** A question without an answer. `status` is 0 where the service was not reached. */
export class Problem extends Error {
  constructor(message, status = 0, seconds = 0) {
    super(message);
    this.status = status;
    this.seconds = seconds; // to wait, as the service says
  }
}

/** Whether the service is reached. Listeners are told of each change. */
export const connection = {
  since: null, // when it was lost
  text: "",
  listeners: new Set(),
  note(error) {
    const lost = error !== null && LOST.has(error.status);
    this.since = lost ? (this.since ?? new Date()) : null;
    this.text = lost ? error.message : "";
    for (const each of this.listeners) each(this);
  },
};

/** How old the data of the view are. Listeners are told of each change. */
export const data = {
  at: null, // the last answer
  problem: null, // since then
  listeners: new Set(),
  note(at, problem) {
    this.at = at;
    this.problem = problem;
    for (const each of this.listeners) each(this);
  },
};

/** The JSON of an endpoint; with a body it is a POST. Raises Problem, after `patience` ms at the latest. */
async function ask(path, { query = {}, body, signal, patience = TIMEOUT } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const url = `../${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  const ends = AbortSignal.timeout(patience);
  const options = { signal: signal ? AbortSignal.any([signal, ends]) : ends, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    options.headers["Content-Type"] = "application/json";
  }
  try {
    const answer = await fetch(url, options);
    if (!answer.ok) throw await refusal(answer);
    const found = await answer.json();
    connection.note(null);
    return found;
  } catch (error) {
    if (signal?.aborted) throw error;
    const found = error instanceof Problem ? error : unreached(error);
    connection.note(found);
    throw found;
  }
}

function unreached(error) {
  if (error.name === "TimeoutError") return new Problem("The service did not answer in time.");
  if (error instanceof SyntaxError) return new Problem("What answers here is not the extender: the answer is no JSON.");
  return new Problem("The service cannot be reached.");
}

async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  const detail = typeof said.error === "string" ? said.error : "";
  const text = [WORDS[answer.status], detail].filter(Boolean).join(" ") || `The service answered with status ${answer.status}.`;
  const at = typeof said.field === "string" && said.field ? ` (${said.field})` : "";
  return new Problem(text + at, answer.status, Number(answer.headers.get("Retry-After")) || 0);
}

/**
 * Everything that the page fetches from the service, by what asks for it: `asked` is the query, the signal, the body and the patience of
 * `ask`. The answers are described in `v1/openapi.json`. Each view draws what it asks for; `decisionStream` is the address of a stream.
 */
export const service = {
  overview: (asked) => ask("v1/overview", asked),
  pending: (asked) => ask("v1/pending", asked),
  explain: (namespace, pod, asked) => ask(ofPod("explain", namespace, pod), asked),
  topology: (asked) => ask("v1/topology", asked),
  workloads: (asked) => ask("v1/workloads", asked),
  constraints: (namespace, pod, asked) => ask(ofPod("constraints", namespace, pod), asked),
  decisions: (asked) => ask("debug/decisions", asked),
  decisionStream: (last) => `../v1/decisions/stream?last=${last}`,
  preemptions: (asked) => ask("v1/preemptions", asked),
  groups: (asked) => ask("v1/groups", asked),
  moves: (asked) => ask("v1/moves", asked),
  policies: (asked) => ask("v1/policies", asked),
  manifest: (kind, name, asked) => ask(`v1/manifests/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`, asked),
  whatif: (asked) => ask("v1/whatif", asked),
  version: (asked) => ask("version", asked),
};

function ofPod(what, namespace, pod) {
  return `v1/${what}/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`;
}

/** Returns after some time, at once where the signal is raised. */
export function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Returns when the tab is shown. */
export function shown(signal) {
  return new Promise((resolve) => {
    if (!document.hidden || signal.aborted) return resolve();
    const look = () => document.hidden || (document.removeEventListener("visibilitychange", look), resolve());
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", () => (document.removeEventListener("visibilitychange", look), resolve()), { once: true });
  });
}

/**
 * Asks again and again until the signal is raised. `question()` returns a promise; `onAnswer(answer)` and `onProblem(problem)`
 * show what it brought. After a refusal the wait doubles, from what the service says, up to half a minute. `isView` is false for a
 * question that is not about what the view shows.
 */
export async function poll(question, { every, onAnswer, onProblem, signal, isView = true }) {
  let failures = 0;
  while (!signal.aborted) {
    await shown(signal);
    if (signal.aborted) return;
    let pause = every;
    try {
      const answer = await question();
      if (signal.aborted) return;
      failures = 0;
      if (isView) data.note(new Date(), null);
      onAnswer(answer);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      failures += 1;
      pause = backOff(error, failures, every);
      if (isView) data.note(data.at, error);
      onProblem(error);
    }
    await wait(pause, signal);
  }
}

function backOff(error, failures, every) {
  const first = Math.max(1000 * error.seconds, ASKED_LATER.has(error.status) || !error.status ? 1000 : every);
  return Math.min(LONGEST_WAIT, first * 2 ** (failures - 1)) * (0.8 + 0.4 * Math.random());
}
