// One slide at a time. → ↓ Space PageDown: on; ← ↑ PageUp: back; Home, End; N: the speaker's notes. The address holds
// the number. Without this script the slides stand below each other and scroll.
const slides = [...document.querySelectorAll("section")];
const STEPS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
let now = 0;

function show(number) {
  now = Math.max(0, Math.min(slides.length - 1, number));
  slides.forEach((slide, i) => slide.classList.toggle("now", i === now));
  fit(slides[now]);
}

function go(number) {
  show(number);
  history.replaceState(null, "", `#${now + 1}`);
}

// Large letters, smaller ones until everything is inside; what does not fit at half the size can be scrolled.
function fit(slide) {
  const inside = slide.querySelector(".inside");
  let scale = inside.matches(".picture") ? 1 : 1.4;
  const set = () => slide.style.setProperty("--scale", scale.toFixed(2));
  set();
  while (scale > 0.5 && (inside.scrollHeight > inside.clientHeight + 1 || tooWide(inside))) {
    scale -= 0.04;
    set();
  }
}

function tooWide(inside) {
  return [inside, ...inside.querySelectorAll("pre, .wide, .formula")].some((e) => e.scrollWidth > e.clientWidth + 1);
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.closest("button, a") && (event.key === " " || event.key === "Enter")) return;
  if (event.key in STEPS) go(now + STEPS[event.key]);
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(slides.length - 1);
  else if (event.key === "n" || event.key === "N") {
    document.documentElement.classList.toggle("notes");
    fit(slides[now]);
  } else return;
  event.preventDefault();
});
document.querySelector(".buttons").addEventListener("click", (event) => {
  const step = event.target.dataset.step;
  if (step) go(now + Number(step));
});
const fromAddress = () => show((parseInt(location.hash.slice(1), 10) || 1) - 1);
addEventListener("hashchange", fromAddress);
addEventListener("resize", () => fit(slides[now]));
addEventListener("load", () => fit(slides[now]));
document.documentElement.classList.add("one");
fromAddress();
