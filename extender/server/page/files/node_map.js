// A map of nodes on a canvas: a block for each domain, a cell for each node, a colour for how much is there.
//
// It is drawn from what has arrived so far, so thousands of nodes cost one element. The line below it has the name of the node that is
// pointed at, or that was reached by the arrow keys or by a first touch; Enter, or a second touch, chooses it.

import { el } from "./dom.js";

const STEPS = 6; // colours of the scale, --map-0 to --map-5 in map.css
const GAP = 2;
const BLOCK_GAP = 18;
const LABEL = 20;
const NARROWEST = 140;
const FEW_BLOCKS = 6;
const KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]);
const HELP = "Point at a node, touch it, or go to it with the arrow keys: its name is shown here.";
const SIZES = [[12, 48], [60, 34], [400, 22], [1500, 14], [Infinity, 9]]; // most cells, and their size in CSS pixels

/** A canvas that draws `blocks`: `{name, cells: [{name, value, text, isCordoned}]}` with values from 0 to 1. */
export class NodeMap {
  #blocks = [];
  #cells = []; // {x, y, size, name, text}, in the order in which they were drawn
  #away = new Set();
  #current = null; // the cell of the line below the map
  #isTouched = false; // by the pointer of the next click
  #onChoose;

  /** `onChoose(name, block)` is called for a click on a cell. */
  constructor(onChoose, signal) {
    this.#onChoose = onChoose;
    const attributes = { "data-own": true, "data-key": "map", role: "application", tabindex: "0", "aria-describedby": "map-line" };
    this.canvas = el("canvas", { ...attributes, onclick: (event) => this.#choose(event), onkeydown: (event) => this.#press(event) });
    this.canvas.onpointerdown = (event) => (this.#isTouched = event.pointerType === "touch");
    this.canvas.onmousemove = (event) => this.#hint(event);
    this.line = el("p", { id: "map-line", class: "note", role: "status", "aria-live": "polite" }, HELP);
    this.element = el("div", { class: "map", "data-key": "map", "data-own": true }, this.canvas, this.line);
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(this.element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => this.#draw();
    dark.addEventListener("change", redraw);
    signal.addEventListener("abort", () => (resized.disconnect(), dark.removeEventListener("change", redraw)));
  }

  /** Shows these blocks; `about` is what a screen reader says of them. */
  show(blocks, about) {
    this.#blocks = blocks;
    this.canvas.setAttribute("aria-label", about);
    this.#draw();
  }

  /** Crosses these nodes out. */
  crossOut(names) {
    this.#away = new Set(names);
    this.#draw();
  }

  /** The names of all nodes on the map. */
  get names() {
    return this.#cells.map((cell) => cell.of.name);
  }

  /** The names of the blocks. */
  get blocks() {
    return this.#blocks.map((block) => block.name).filter(Boolean);
  }

  #draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const style = getComputedStyle(this.element);
    const total = this.#blocks.reduce((sum, block) => sum + block.cells.length, 0);
    const size = SIZES.find(([most]) => total <= most)[1];
    const places = this.#place(width, size);
    const height = places.height;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const colours = Array.from({ length: STEPS }, (_, step) => style.getPropertyValue(`--map-${step}`));
    const onColours = Array.from({ length: STEPS }, (_, step) => style.getPropertyValue(`--on-map-${step}`));
    pen.textBaseline = "middle";
    for (const { text, x, y, width: room } of places.labels) {
      pen.font = `600 13px ${style.fontFamily}`;
      pen.fillStyle = style.color;
      pen.fillText(text, x, y, room);
    }
    pen.textAlign = "center";
    pen.font = `${Math.round(size * 0.4)}px ${style.fontFamily}`;
    for (const cell of this.#cells) this.#cell(pen, cell, colours, onColours, style.color);
  }

  #cell(pen, { x, y, size, of }, colours, onColours, line) {
    const step = of.value > 0 ? Math.min(STEPS - 1, 1 + Math.floor(of.value * (STEPS - 1.001))) : 0;
    pen.fillStyle = colours[step];
    pen.fillRect(x, y, size, size);
    const isAway = this.#away.has(of.name);
    pen.strokeStyle = line;
    pen.lineWidth = isAway ? 2.5 : 1.5;
    pen.beginPath();
    if (of.isCordoned || isAway) {
      pen.moveTo(x, y + size);
      pen.lineTo(x + size, y);
    }
    if (isAway) {
      pen.moveTo(x, y);
      pen.lineTo(x + size, y + size);
    }
    pen.stroke();
    if (this.#current?.of.name === of.name) pen.strokeRect(x + 0.75, y + 0.75, size - 1.5, size - 1.5);
    if (of.mark && size >= 20) {
      pen.fillStyle = onColours[step];
      pen.fillText(of.mark, x + size / 2, y + size / 2 + 1);
    }
  }

  /** Blocks from left to right, each as wide as it needs to be about as high as wide; sets the cells. */
  #place(width, size) {
    this.#cells = [];
    const labels = [];
    const isPlain = this.#blocks.length === 1 && !this.#blocks[0].name;
    let [left, top, rowHeight] = [0, 0, 0];
    for (const block of this.#blocks) {
      const fit = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
      const columns = Math.min(fit, isPlain ? fit : this.#columns(block, width, size));
      const blockWidth = columns * (size + GAP) - GAP;
      if (left && left + blockWidth > width) {
        left = 0;
        top += rowHeight + BLOCK_GAP;
        rowHeight = 0;
      }
      const head = isPlain ? 0 : LABEL;
      if (head) labels.push({ text: block.name, x: left, y: top + LABEL / 2, width: blockWidth });
      block.cells.forEach((of, at) => {
        const x = left + (at % columns) * (size + GAP);
        const y = top + head + Math.floor(at / columns) * (size + GAP);
        this.#cells.push({ x, y, size, of, block });
      });
      rowHeight = Math.max(rowHeight, head + Math.ceil(block.cells.length / columns) * (size + GAP));
      left += blockWidth + BLOCK_GAP;
    }
    return { labels, height: Math.max(1, top + rowHeight) };
  }

  /** How many columns a block has: few blocks share the width, many are about as high as wide. */
  #columns(block, width, size) {
    const number = this.#blocks.length;
    const share = (width - BLOCK_GAP * (number - 1)) / number;
    const least = Math.ceil(NARROWEST / (size + GAP));
    if (share >= NARROWEST && number <= FEW_BLOCKS) return Math.max(least, Math.min(block.cells.length, Math.floor((share + GAP) / (size + GAP))));
    return Math.max(least, Math.ceil(Math.sqrt(block.cells.length * 1.6)));
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.#cells.find((cell) => x >= cell.x && x < cell.x + cell.size + GAP && y >= cell.y && y < cell.y + cell.size + GAP);
  }

  #hint(event) {
    const found = this.#at(event);
    this.canvas.title = found ? found.of.text : "";
    this.canvas.classList.toggle("pointed", Boolean(found));
    if (found && !this.#isTouched) this.#show(found);
  }

  #choose(event) {
    const found = this.#at(event);
    if (!found) return;
    const isKnown = this.#current?.of.name === found.of.name;
    this.#show(found);
    if (isKnown || !this.#isTouched) this.#onChoose(found.of.name, found.block.name);
    else this.line.textContent = `${found.of.text}. Touch it again to choose it.`;
  }

  /** Tells the node of a cell in the line below the map, and marks the cell. */
  #show(cell) {
    const isOther = this.#current?.of.name !== cell.of.name;
    this.#current = cell;
    if (this.line.textContent !== cell.of.text) this.line.textContent = cell.of.text;
    if (isOther) this.#draw();
  }

  /** Arrow keys go from cell to cell, Home and End to the first and the last, Enter and the space bar choose. */
  #press(event) {
    const cells = this.#cells;
    if (!cells.length || event.ctrlKey || event.altKey || event.metaKey) return;
    const at = cells.findIndex((cell) => cell.of.name === this.#current?.of.name);
    if ((event.key === "Enter" || event.key === " ") && at >= 0) this.#onChoose(cells[at].of.name, cells[at].block.name);
    else {
      const next = this.#next(event.key, at);
      if (next === null) return;
      this.#show(cells[next]);
    }
    event.preventDefault(); // the page would scroll
  }

  /** The cell that a key leads to, from the cell at this place, which is -1 for none; null for another key. */
  #next(key, at) {
    const last = this.#cells.length - 1;
    if (!KEYS.has(key)) return null;
    if (at < 0 || key === "Home") return 0;
    if (key === "End") return last;
    if (key === "ArrowLeft") return Math.max(0, at - 1);
    if (key === "ArrowRight") return Math.min(last, at + 1);
    const here = this.#cells[at];
    const sign = key === "ArrowDown" ? 1 : -1;
    const beyond = this.#cells.map((cell, index) => ({ index, down: sign * (cell.y - here.y), aside: Math.abs(cell.x - here.x) })).filter((cell) => cell.down > 0);
    beyond.sort((one, other) => one.down - other.down || one.aside - other.aside);
    return beyond[0]?.index ?? at;
  }
}

/** The scale of the colours as a list. `least` and `most` are the texts of its ends. */
export function legend(none, least, most) {
  const steps = Array.from({ length: STEPS - 1 }, (_, step) => el("span", { class: `swatch step-${step + 1}` }));
  return el("p", { class: "legend", "aria-hidden": "true" }, el("span", { class: "swatch step-0" }), ` ${none} `, el("span", {}, `${least} `), steps, ` ${most}; a stroke: cordoned`);
}
