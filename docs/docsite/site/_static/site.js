/* Finds symptoms on the front page, and names the column of each cell of a table that a narrow screen stacks. */
"use strict";

function wordsOf(text) {
  return text.toLowerCase().split(/[^a-z0-9_]+/).filter(Boolean);
}

/* True if each word that was typed begins a word of the symptom or of its checks; "load balancer" finds "LoadBalancer". */
function matches(words, text) {
  const plain = wordsOf(text);
  const joined = plain.join("");
  return words.every((word) => plain.some((other) => other.startsWith(word)) || (word.length > 3 && joined.includes(word)));
}

function searchSymptoms() {
  const field = document.getElementById("symptom-search");
  const nothing = document.getElementById("no-symptom");
  const entries = [...document.querySelectorAll("#symptom-list > ul > li")];
  const show = () => {
    const words = wordsOf(field.value);
    entries.forEach((entry) => { entry.hidden = words.length > 0 && !matches(words, entry.textContent); });
    nothing.hidden = entries.some((entry) => !entry.hidden);
  };
  field.hidden = false;
  field.addEventListener("input", show);
  show();
}

function labelCells() {
  document.querySelectorAll("table.docutils:not(.ansible-option-table)").forEach((table) => {
    const labels = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    table.querySelectorAll("tbody tr").forEach((row) => {
      [...row.cells].forEach((cell, column) => { if (column && labels[column]) cell.dataset.label = labels[column]; });
    });
  });
}

labelCells();
if (document.getElementById("symptom-search")) searchSymptoms();
