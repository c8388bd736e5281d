// Fields, and links to the next rows of an answer.

import { el } from "./dom.js";
import { address } from "./routing.js";
import { count } from "./words.js";

/** A field of text with its label. `onChange(text)` is called when the reader has finished; one that `empties` is empty then. */
export function field(label, value, onChange, { suggestions = [], hint = "", empties = false } = {}) {
  const done = (input) => {
    const text = input.value.trim();
    if (empties) input.value = "";
    onChange(text);
  };
  const id = `field-${label.toLowerCase().replaceAll(" ", "-")}`;
  const list = suggestions.length ? `${id}-list` : null;
  return el(
    "form",
    { class: "field", role: "search", onsubmit: (event) => (event.preventDefault(), done(event.target.elements[id])) },
    el("label", { for: id }, label),
    el("input", {
      id,
      name: id,
      value,
      list,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      autocapitalize: "none",
      placeholder: hint,
      onchange: (event) => done(event.target),
    }),
    list ? el("datalist", { id: list }, suggestions.map((each) => el("option", { value: each }))) : null,
  );
}

/**
 * A labelled field of a larger form, by its name there: a line of text, some lines where it `isLong`, or a choice of `options`. The
 * page leaves what the reader writes into it alone.
 */
export function input(label, name, { value = "", hint = "", suggestions = [], options = null, isLong = false, isShort = false } = {}) {
  const id = `input-${label.toLowerCase().replace(/[^a-z]+/g, "-")}-${name}`;
  const list = suggestions.length ? `${id}-list` : null;
  const given = { id, name, "data-kept": true, autocomplete: "off", spellcheck: "false", autocapitalize: "none", placeholder: hint };
  const control = options
    ? el("select", { id, name, "data-kept": true }, options.map((each) => el("option", { value: each }, each)))
    : isLong
      ? el("textarea", { ...given, rows: 4 })
      : el("input", { ...given, value, type: "text", list, size: isShort ? 4 : Math.max(20, hint.length) });
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    control,
    list ? el("datalist", { id: list }, suggestions.map((each) => el("option", { value: each }))) : null,
  );
}

/** A choice with its label. `options` are values, or pairs of a value and its text. */
export function choice(label, value, options, onChange) {
  const id = `choice-${label.toLowerCase().replaceAll(" ", "-")}`;
  const pairs = options.map((each) => (Array.isArray(each) ? each : [each, each]));
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    el(
      "select",
      { id, onchange: (event) => onChange(event.target.value) },
      pairs.map(([one, text]) => el("option", { value: one, selected: one === value }, text)),
    ),
  );
}

/** What is left out of an answer, with links to it and back to the beginning; null where it is complete. */
export function pager(found, parts, query) {
  if (!found.more && !query.after) return null;
  return el(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    query.after ? el("a", { href: address(parts, { ...query, after: "" }) }, "First page") : null,
    found.more && found.next ? el("a", { href: address(parts, { ...query, after: found.next }) }, `Next page (${count(found.more)} more)`) : null,
    found.more && !found.next ? el("span", {}, `${count(found.more)} more are not shown.`) : null,
  );
}
