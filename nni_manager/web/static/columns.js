// Order and width of the table's columns. The order is in the address, as `columns`. Widths are stored in this browser, for
// each experiment. Drag a heading to move its column, or its right edge to resize it. Keys on a heading: Shift and arrows,
// plus, minus and 0.

import { names } from "./charts/ranges.js";
import { state } from "./state.js";

const LEAST = 48;
const STEP = 16;
const EDGE = 8;
const COLUMNS = `nni_manager.columns.${document.body.dataset.id}`;
const WIDTHS = `nni_manager.widths.${document.body.dataset.id}`;

const part = document.getElementById("trials-part");
const sheet = document.head.appendChild(document.createElement("style"));
let widths = remembered();
let dragged = null;
let sized = null;

function headings() {
  return [...part.querySelectorAll("th[scope=col]:has([id^=sort-])")];
}

function nameOf(heading) {
  return heading.querySelector("[id^=sort-]").id.slice("sort-".length);
}

function headingAt(event) {
  return event.target.closest?.("th[scope=col]:has([id^=sort-])") ?? null;
}

// Order

function move(name, to) {
  const all = headings().map(nameOf);
  const at = all.indexOf(name);
  if (at < 0 || to < 0 || to >= all.length || to === at) return;
  all.splice(to, 0, ...all.splice(at, 1));
  keep(COLUMNS, names(all));
  state.set({ columns: names(all) });
}

// Widths

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(WIDTHS)) ?? {};
  } catch {
    return {};
  }
}

function keep(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    // not stored
  }
}

// `width`: pixels, or null: as wide as its content.
function widen(name, width) {
  if (width === null) delete widths[name];
  else widths[name] = Math.max(LEAST, Math.round(width));
  keep(WIDTHS, JSON.stringify(widths));
  apply();
}

function apply() {
  const rules = headings().map((heading) => {
    const width = widths[nameOf(heading)];
    if (!(width > 0)) return "";
    const cells = `table.trials tr > :nth-child(${heading.cellIndex + 1})`;
    return `${cells} { min-width: ${width}px; max-width: ${width}px; overflow: hidden; text-overflow: ellipsis; }`;
  });
  // a table as wide as the window would redistribute the width that a narrower column frees
  const own = rules.some(Boolean) ? "table.trials { width: max-content; }" : "";
  const text = `@media (min-width: 40rem) { ${own} ${rules.join("\n")} }`;
  if (sheet.textContent !== text) sheet.textContent = text; // each change recomputes the styles of the whole page
}

// Pointer

function isAtEdge(heading, event) {
  return heading.getBoundingClientRect().right - event.clientX <= EDGE;
}

function pressed(event) {
  const heading = headingAt(event);
  if (!heading || event.button !== 0 || !isAtEdge(heading, event)) return;
  event.preventDefault();
  sized = { name: nameOf(heading), from: event.clientX, width: heading.getBoundingClientRect().width };
  part.setPointerCapture(event.pointerId);
}

function moved(event) {
  const heading = headingAt(event);
  if (heading) heading.style.cursor = isAtEdge(heading, event) ? "col-resize" : "";
  if (sized) widen(sized.name, sized.width + event.clientX - sized.from);
}

// The click that ends a resize must not sort.
function released() {
  if (!sized) return;
  sized = null;
  const swallow = (event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  addEventListener("click", swallow, { capture: true, once: true });
  setTimeout(() => removeEventListener("click", swallow, { capture: true }));
}

part.addEventListener("pointerdown", pressed);
part.addEventListener("pointermove", moved);
part.addEventListener("pointerup", released);
part.addEventListener("pointercancel", released);
part.addEventListener("dblclick", (event) => {
  const heading = headingAt(event);
  if (heading && isAtEdge(heading, event)) widen(nameOf(heading), null);
});
part.addEventListener("dragstart", (event) => {
  const heading = headingAt(event);
  dragged = heading && !sized ? nameOf(heading) : null;
  if (heading && sized) event.preventDefault();
});
part.addEventListener("dragover", (event) => dragged && headingAt(event) && event.preventDefault());
part.addEventListener("drop", (event) => {
  const heading = headingAt(event);
  if (!dragged || !heading) return;
  event.preventDefault();
  move(dragged, headings().map(nameOf).indexOf(nameOf(heading)));
  dragged = null;
});

// Keyboard

part.addEventListener("keydown", (event) => {
  const heading = headingAt(event);
  if (!heading || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = nameOf(heading);
  const step = event.shiftKey ? { ArrowLeft: -1, ArrowRight: 1 }[event.key] : undefined;
  const wider = { "+": STEP, "-": -STEP }[event.key];
  if (step) move(name, headings().indexOf(heading) + step);
  else if (wider) widen(name, (widths[name] ?? heading.getBoundingClientRect().width) + wider);
  else if (event.key === "0") widen(name, null);
  else return;
  event.preventDefault();
});

document.addEventListener("replaced", apply);
apply();
