// The menu of other experiments: finds all experiments whose name or id contains the typed text.

const MOST = 30;
const PAUSE_MS = 150;

const menu = document.getElementById("switcher");
const field = document.getElementById("find-experiment");
const list = document.getElementById("others");
let timer = null;
let asking = null;

function links() {
  return [...list.querySelectorAll("a")];
}

async function find() {
  asking?.abort();
  asking = new AbortController();
  const query = new URLSearchParams({ name: field.value.trim(), order: "-created", limit: MOST });
  try {
    const answer = await fetch(`${list.dataset.api}?${query}`, { signal: asking.signal });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    if (error.name !== "AbortError") say(`search failed: ${error.message}`);
  }
}

function show({ experiments, total }) {
  const others = experiments.filter(({ id }) => id !== document.body.dataset.id);
  list.replaceChildren(...others.map(row));
  if (!total) say("no experiment matches");
  else if (total > MOST) say(`the newest ${MOST} of ${total}`);
  else say("");
}

function row({ id, name }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  const code = document.createElement("code");
  link.href = `${list.dataset.pages}/${id}`;
  code.textContent = id;
  link.append(`${name || id} `, code);
  item.append(link);
  return item;
}

// Next to the link to all experiments.
function say(words) {
  const place = document.getElementById("found");
  place.replaceChildren(...(words ? [`${words} · `] : []), place.querySelector("a"));
}

// For the current text, which may not have been requested yet.
async function openFirst() {
  clearTimeout(timer);
  if (field.value.trim()) await find();
  links()[0]?.click();
}

// Arrows move between field and results, Enter opens the first result.
function pressed(event) {
  const all = [field, ...links()];
  const at = all.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Enter" && at === 0) openFirst();
  else if (step && at >= 0) all[Math.min(Math.max(at + step, 0), all.length - 1)].focus();
  else return;
  event.preventDefault();
}

if (menu && field) {
  field.hidden = false;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, PAUSE_MS);
  });
  menu.addEventListener("keydown", pressed);
  menu.addEventListener("toggle", () => menu.open && field.focus());
}
