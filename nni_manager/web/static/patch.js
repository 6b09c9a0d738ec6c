// Updates an element from the server's previous content to its current one. Only texts, attributes and elements that differ
// between the two are changed, so changes by scripts and reader remain, and unchanged elements are not redrawn.

/** Returns false if the element's structure differs from the server's content; replace the element then. */
export function patch(own, before, next) {
  if (before.isEqualNode(next)) return true;
  if (own.nodeType === Node.TEXT_NODE) {
    own.data = next.data;
    return true;
  }
  if (own.nodeType !== Node.ELEMENT_NODE) return false;
  if (!areAlike(own.childNodes, before.childNodes)) return false;
  attributes(own, before, next);
  children(own, before, next);
  return true;
}

function areAlike(some, others) {
  return some.length === others.length && [...some].every((node, at) => node.nodeName === others[at].nodeName);
}

function attributes(own, before, next) {
  for (const { name, value } of next.attributes) {
    if (before.getAttribute(name) !== value && !isReaders(own, name)) own.setAttribute(name, value);
  }
  for (const { name } of before.attributes) {
    if (!next.hasAttribute(name) && !isReaders(own, name)) own.removeAttribute(name);
  }
}

// Elements that only the reader opens and closes.
function isReaders(element, name) {
  return name === "open" && element.localName === "details" && element.id !== "";
}

// Children match by id, rows by trial, others by position among elements of the same kind.
function children(own, before, next) {
  const nodes = [...own.childNodes];
  const old = new Map(keyed(before.childNodes).map(([key, node], at) => [key, { own: nodes[at], before: node }]));
  const fresh = keyed(next.childNodes);
  const wanted = new Set(fresh.map(([key]) => key));
  for (const [key, { own: node }] of old) if (!wanted.has(key)) node.remove();
  let place = own.firstChild;
  for (const [key, node] of fresh) {
    const found = old.get(key);
    if (found && found.own === place) place = place.nextSibling;
    else own.insertBefore(found?.own ?? document.importNode(node, true), place);
    if (found && !patch(found.own, found.before, node)) found.own.replaceWith(document.importNode(node, true));
  }
}

function keyed(nodes) {
  const counts = new Map();
  return [...nodes].map((node) => {
    const own = node.id || node.dataset?.trial;
    if (own) return [`${node.nodeName} ${own}`, node];
    const count = (counts.get(node.nodeName) ?? 0) + 1;
    counts.set(node.nodeName, count);
    return [`${node.nodeName}:${count}`, node];
  });
}
