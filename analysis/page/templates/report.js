"use strict";
const number = text => {
  const plain = text.replace(/,/g, "").replace(/\u2212/g, "-").replace("\u221e", "Infinity");
  const found = plain.match(/^[<>+ ]*(-?(Infinity|\d+(\.\d+)?(e[+-]?\d+)?))/);
  return found ? parseFloat(found[1]) : NaN;
};
// texts by their parts, as fmt.by_number: node2 before node10, 0.05 before 0.1
const parts = text => [...text.matchAll(
  /(\D*)((?<!\.)\d+(?:,\d{3})*(?:\.\d+(?![\d.]))?(?:e[+-]?\d+)?|\d*)/g)]
  .map(found => [found[1], parseFloat(found[2].replace(/,/g, "") || 0)]);
const compared = (a, b) => {
  const [x, y] = [parts(a), parts(b)];
  for (let at = 0; at < Math.min(x.length, y.length); at++) {
    const by = x[at][0].localeCompare(y[at][0]) || x[at][1] - y[at][1];
    if (by) return by;
  }
  return x.length - y.length;
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
      const by = (isNaN(p) ? 0 : p - q) || compared(x, y);
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
// tips without a pointer: Tab reaches the first part of a plot, arrows the others, a tap each
const box = document.createElement("div");
box.className = "tip-box";
box.hidden = true;
box.setAttribute("aria-hidden", "true");  // screen readers have the same from the part itself
document.body.append(box);
const show = part => {
  const place = part.getBoundingClientRect(), title = part.querySelector("title");
  box.textContent = title ? title.textContent : part.title;
  box.hidden = false;
  const most = innerWidth - box.offsetWidth - 8;
  box.style.left = `${scrollX + Math.max(8, Math.min(place.left, most))}px`;
  box.style.top = `${scrollY + place.bottom + 6}px`;
};
const hide = () => { box.hidden = true; };
const tipped = part => {
  part.addEventListener("focus", () => show(part));
  part.addEventListener("blur", hide);
  part.addEventListener("click", () => { part.focus(); show(part); });
};
document.querySelectorAll("th > button[title]").forEach(tipped);
addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
for (const plot of document.querySelectorAll("figure svg")) {
  const parts = [...plot.querySelectorAll("g.tip")];
  if (parts.length) parts[0].setAttribute("tabindex", "0");
  parts.forEach((part, at) => {
    tipped(part);
    part.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = by && parts[at + by];
      if (!next) return;
      event.preventDefault();
      part.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
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
