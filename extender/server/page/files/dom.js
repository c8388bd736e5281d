// Builds elements from data, and updates what is shown without losing focus, scroll position or opened details.
//
// Every text becomes a text node: no name or label of a cluster is ever read as markup.

const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onkeydown", "ontoggle"];
const OF_THE_READER = { DETAILS: ["open"] }; // attributes that the reader changes, which an update leaves alone

/**
 * An element. Attributes: functions become handlers, `true` an empty attribute, `false`, null and undefined none; `vars`
 * are custom properties of CSS, as the policy of the page forbids style attributes. Children: nodes, texts, or lists of them.
 */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "vars") for (const [one, amount] of Object.entries(value)) made.style.setProperty(`--${one}`, String(amount));
    else if (typeof value === "function") made[key] = value;
    else if (key === "value") made.value = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** Makes the children of an element those given. Children with the same `data-key`, or else place, stay the same elements. */
export function update(parent, ...children) {
  const focused = document.activeElement;
  reconcile(parent, el("div", {}, ...children).childNodes);
  if (focused && focused !== document.activeElement && focused.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true }); // it was moved
  }
}

function reconcile(parent, fresh) {
  const known = new Map();
  for (const child of parent.childNodes) if (keyOf(child)) known.set(keyOf(child), child);
  let at = parent.firstChild;
  for (const wanted of [...fresh]) {
    const key = keyOf(wanted);
    const old = key ? known.get(key) : at && !keyOf(at) ? at : null;
    if (!old || old.nodeName !== wanted.nodeName || isOwn(wanted)) {
      parent.insertBefore(wanted, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else parent.insertBefore(old, at);
    patch(old, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Whether its view keeps and draws the element itself. */
function isOwn(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.hasAttribute("data-own");
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined;
}

function patch(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  const kept = OF_THE_READER[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !wanted.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name !== "style" && !kept.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== wanted.style.cssText) old.style.cssText = wanted.style.cssText;
  for (const handler of HANDLERS) if (old[handler] !== wanted[handler]) old[handler] = wanted[handler];
  reconcile(old, wanted.childNodes);
  if ("value" in old && !old.hasAttribute("data-kept") && old !== document.activeElement && old.value !== wanted.value) old.value = wanted.value;
}

/**
 * A table that scrolls sideways by itself where it is wider than the screen. Columns: `{head, cell(row), isNumber, isName,
 * isShort}`; a name is the header of its row. `keyOf(row)` tells rows apart in an update. One of few numbers is narrow.
 */
export function table(caption, columns, rows, keyOf = null, { isNarrow = false } = {}) {
  const head = el("tr", {}, columns.map((each) => el("th", { scope: "col", class: each.isNumber && "number" }, each.head)));
  const body = rows.map((row) => el("tr", { "data-key": keyOf && keyOf(row) }, columns.map((each) => cell(each, row))));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: isNarrow && "narrow" }, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body)),
  );
}

function cell(column, row) {
  const content = column.cell(row);
  if (column.isName) return el("th", { scope: "row" }, content);
  return el("td", { class: column.isNumber ? "number" : column.isShort && "short", "data-head": column.head }, content);
}

/** A bar of a share from 0 to 1 beside its value as text, which is what a screen reader reads. */
export function bar(share, text, kind = "") {
  const shown = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0));
  return el("span", { class: `bar ${kind}`, vars: { share: shown } }, el("span", { class: "value" }, text));
}

/** A word about a state, with a colour that repeats what the word says. */
export function badge(word, kind = "neutral") {
  return el("span", { class: `badge ${kind}` }, word);
}

/** A paragraph in place of an empty table. */
export function nothing(text) {
  return el("p", { class: "nothing" }, text);
}

/** What went wrong, in words, with a remedy where there is one. */
export function problem(error) {
  return el("p", { class: "problem", role: "alert" }, error.message);
}

/** A section with its heading. */
export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}
