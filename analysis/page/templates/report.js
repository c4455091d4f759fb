"use strict";
const number = text => {
  const plain = text.replace(/,/g, "").replace(/\u2212/g, "-").replace("\u221e", "Infinity");
  const found = plain.match(/^[<>+ ]*(-?(Infinity|\d+(\.\d+)?(e[+-]?\d+)?))/);
  return found ? parseFloat(found[1]) : NaN;
};
for (const button of document.querySelectorAll("th > button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = row => row.cells[head.cellIndex].textContent;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [order(a), order(b)], [p, q] = [number(x), number(y)];
      if (isNaN(p) !== isNaN(q)) return isNaN(p) ? 1 : -1;
      const by = isNaN(p) ? x.localeCompare(y) : p - q;
      return down ? -by : by;
    });
    body.append(...rows);
  });
}
for (const input of document.querySelectorAll("input[data-for]")) {
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    for (const row of document.getElementById(input.dataset.for).tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every(word => text.includes(word));
    }
  });
}
// the rows that are shown, in their order; a part of a table is not named as the file of all
for (const button of document.querySelectorAll("button[data-csv]")) {
  const key = button.dataset.csv, table = document.getElementById(key + "-rows");
  const places = new Map(table && [...table.tBodies[0].rows].map((row, place) => [row, place]));
  button.addEventListener("click", () => {
    let text = document.getElementById(key + "-csv").textContent
      .replace(/<\\([/!])/g, "<$1");  // as in the file: the page must not end its own script
    let name = key;
    if (table) {
      const [head, ...lines] = text.match(/([^"\n]|"[^"]*")*\n/g);
      const shown = [...table.tBodies[0].rows].filter(row => !row.hidden);
      text = [head, ...shown.map(row => lines[places.get(row)])].join("");
      if (shown.length < button.dataset.of) name += `-${shown.length}-of-${button.dataset.of}`;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
// a link to something inside a folded part opens it
const unfold = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  const inner = target && target.querySelector(":scope > details");
  if (inner) inner.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
addEventListener("load", unfold);
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
