// Addresses of views: `#/pods/NAMESPACE/NAME?node=NODE`. A view has the address of all that it shows.

/** The address of a view. Parts and values are encoded; empty values are left out. */
export function address(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** The parts and the query of an address. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").filter(Boolean).map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

/** The address of a pod, named as `namespace/name`. */
export function podAddress(fullName) {
  const [namespace, name = ""] = fullName.split("/");
  return address(["pods", namespace, name]);
}

/** Another query of the view that is shown, in place of this entry of the history. */
export function replaceQuery(query) {
  const { parts } = parsed(location.hash);
  history.replaceState(null, "", address(parts, query));
}

/** Another query of the view that is shown, as a new entry of the history; the view is not opened again. */
export function pushQuery(query) {
  const { parts } = parsed(location.hash);
  history.pushState(null, "", address(parts, query));
}
