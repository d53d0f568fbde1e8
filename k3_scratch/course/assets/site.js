// What the pages do beyond links: arrow keys turn them; a formula in a line that is wider than the page gets a line of
// its own; and what can be scrolled sideways can be reached by Tab.
const SCROLLING = "pre, .wide, .formula";

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.target.closest("input, textarea, select, [tabindex]")) return;   // there an arrow key scrolls
  const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const link = way && document.querySelector(`a[rel=${way}]`);
  if (link) location.href = link.href;
});

function unbroken() {
  for (const own of document.querySelectorAll(".own")) own.replaceWith(own.firstChild);   // the page may be wider now
  const lines = [...document.querySelectorAll("math[display=inline]")].map((formula) => [formula,
    formula.closest("p, li, td, th, h1, h2, h3, h4, figure")]);
  const right = (part) => part.getBoundingClientRect().right;
  const end = (formula) => formula.querySelector("mrow")?.lastElementChild ?? formula;   // <math> is cut to the line
  const long = lines.filter(([f, line]) => line && Math.max(right(f), right(end(f))) > right(line) + 1);
  for (const [formula] of long) {
    const own = document.createElement("span");
    own.className = "formula own";
    formula.replaceWith(own);
    own.append(formula);
  }
}

function reachable() {
  unbroken();
  for (const part of document.querySelectorAll(SCROLLING)) {
    if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
