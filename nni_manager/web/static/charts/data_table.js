// A chart's data as an HTML table and as CSV.

import { number } from "./formats.js";
import { addressOf } from "./opening.js";

// Longer tables are slow to lay out. The CSV file has all rows.
const MOST_ROWS = 1000;

// `columns`: names. Values in the column "trial" are trial numbers, shown as links.
export function fill(place, { columns, rows }, figure) {
  const table = document.createElement("table");
  table.append(head(columns), body(columns, rows.slice(0, MOST_ROWS), figure));
  const caption = table.createCaption();
  if (rows.length > MOST_ROWS) caption.textContent = `The first ${MOST_ROWS} of ${rows.length} rows. The CSV file has all.`;
  place.replaceChildren(table);
}

export function csv({ columns, rows }) {
  return [columns, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function head(columns) {
  const head = document.createElement("thead");
  const row = head.insertRow();
  for (const name of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    row.append(cell);
  }
  return head;
}

function body(columns, rows, figure) {
  const body = document.createElement("tbody");
  for (const values of rows) {
    const row = body.insertRow();
    values.forEach((value, index) => put(row.insertCell(), columns[index], value, figure));
  }
  return body;
}

function put(cell, column, value, figure) {
  if (typeof value === "number") cell.className = "count";
  if (column !== "trial" || value === null || value === undefined) {
    cell.textContent = number(value);
    return;
  }
  const link = document.createElement("a");
  link.href = addressOf(figure, value);
  link.textContent = value;
  cell.append(link);
}

function quoted(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
