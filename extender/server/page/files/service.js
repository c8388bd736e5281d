// What the service says of itself, for views that need it before they can ask.

import { problem, update } from "./dom.js";
import { Problem, service, wait } from "./fetching.js";

/** The overview, asked for until it is there; null where the view was left before. */
export async function overview(signal, outlet) {
  while (!signal.aborted) {
    try {
      return await service.overview({ signal });
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof Problem)) throw error;
      update(outlet, problem(error));
      await wait(1000 * Math.max(2, error.seconds), signal);
    }
  }
  return null;
}
