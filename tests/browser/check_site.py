"""Look at the site and the slides in a real browser: `python tests/browser/check_site.py FOLDER [--shots FOLDER]`.

Not a part of `make test` (pytest collects test_*.py only): it needs a Chromium on this machine and the package
playwright, in an environment of its own.

    make site && python -m pip install playwright
    python tests/browser/check_site.py build/site --chromium /usr/bin/chromium

Every page of FOLDER is opened from its file, 1280 pixels wide by day and 400 wide by night. It ends with status 1 and
a line for each fault: a request that leaves the machine, an error on the console, a picture that is broken or has no
text, a formula of no size or left as LaTeX, something wider than the page, an arrow key that does not turn the page; in
slides also a slide that does not fit.
"""

import argparse
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SHOWN = 6000                 # pixels of a long page that a picture of it holds
FACTS = """() => ({
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  pictures: [...document.images].filter(i => !i.alt.trim() || !i.complete || !i.naturalWidth)
            .map(i => i.src.slice(-60)),
  formulas: [...document.querySelectorAll("math")].filter(m => m.checkVisibility() && !(m.getBoundingClientRect().width
             > 0 && m.getBoundingClientRect().height > 0)).map(m => m.getAttribute("alttext")),
  number: document.querySelectorAll("math").length,
  raw: [...document.querySelectorAll("p, li, td, h2, h3")].map(e => { const c = e.cloneNode(true);
        c.querySelectorAll("code, pre, math").forEach(x => x.remove()); return c.textContent; })
        .filter(t => /\\$[^$ ]*\\\\|\\\\(frac|top|beta|operatorname)/.test(t)).map(t => t.slice(0, 60)),
  ids: [...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i),
  lang: document.documentElement.lang, h1: document.querySelectorAll("h1").length,
})"""
TORN = """() => [...document.querySelectorAll(".own > math")].filter(m => m.checkVisibility() &&
  m.getBoundingClientRect().width < m.parentElement.clientWidth / 2).map(m => m.getAttribute("alttext"))"""
LOAD_ALL = "() => [...document.images].forEach(i => { i.loading = 'eager'; })"
TOO_WIDE = """w => [...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > w + 1)
  .slice(-3).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40))"""
FITS = """() => { const s = document.querySelector("section.now .inside");
  return [s.scrollHeight - s.clientHeight, s.scrollWidth - s.clientWidth,
          +getComputedStyle(s.parentElement).getPropertyValue("--scale")]; }"""


def check(page, file, width, faults, shots):
    """Open one page and note what is wrong with it.                                       -> number of its formulas"""
    def fault(*words):
        faults.append(f"{file.name} at {width}: {' '.join(map(str, words))}")
    page.goto(file.as_uri())
    page.evaluate(LOAD_ALL)
    page.wait_for_function("() => [...document.images].every(i => i.complete)")
    facts = page.evaluate(FACTS)
    if facts["wide"] > 0:
        fault("wider than the page by", facts["wide"], page.evaluate(TOO_WIDE, width))
    for name in ("pictures", "formulas", "raw", "ids"):
        if facts[name]:
            fault(name, facts[name][:4])
    if facts["lang"] != "en" or facts["h1"] != 1:
        fault("needs a language and one <h1>, has", facts["lang"], facts["h1"])
    if page.locator("body.deck").count():
        turn_slides(page, fault, width, shots and f"{shots / file.stem}_{width}")
    else:
        if shots:
            high = min(SHOWN, page.evaluate("document.documentElement.scrollHeight"))
            page.screenshot(path=shots / f"{file.parent.name}_{file.stem}_{width}.png", full_page=True, timeout=120_000,
                            clip={"x": 0, "y": 0, "width": width, "height": high})
        page.set_viewport_size({"width": 200, "height": 720})            # as narrow as a printer's or a preview may be
        page.set_viewport_size({"width": width, "height": 720})
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        torn = page.evaluate(TORN)
        if torn:
            fault("formulas that would fit stand on lines of their own:", len(torn), torn[:3])
        turn_pages(page, file, fault)
    return facts["number"]


def turn_pages(page, file, fault):
    """→ leads to the next page and ← back; the first Tab reaches the link past the menu."""
    following = page.locator("a[rel=next]")
    if following.count():
        target = following.get_attribute("href").split("/")[-1]
        for key, names in (("ArrowRight", (target,)), ("ArrowLeft", (file.name, "index.html"))):
            before = page.url
            page.keyboard.press(key)
            page.wait_for_url(lambda url, before=before: url != before)
            if page.url.split("/")[-1] not in names:
                fault(key, "led to", page.url)
    page.goto(file.as_uri())
    page.keyboard.press("Tab")
    if page.evaluate("document.activeElement.className") != "skip":
        fault("the first Tab does not reach the link to the text")


def turn_slides(page, fault, width, shots):
    """Every slide is reached with →, stands alone and fits; Home, End, ←, PageUp and N do what they should."""
    number = page.locator("section").count()
    for i in range(1, number + 1):
        if page.locator("section.now").count() != 1 or (i > 1 and page.evaluate("location.hash") != f"#{i}"):
            fault("slide", i, "is not shown alone")
        high, wide, scale = page.evaluate(FITS)
        if width >= 1000 and (high > 1 or wide > 1 or scale < 0.6):
            fault("slide", i, f"does not fit: {high} too high, {wide} too wide, scale {scale}")
        if shots and width >= 1000:
            page.screenshot(path=f"{shots}_{i:02d}.png")
        page.keyboard.press("ArrowRight")
    for key, wanted in (("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", number), ("PageUp", number - 1)):
        page.keyboard.press(key)
        reached = page.evaluate("location.hash")                         # page.url may lag behind
        if reached != f"#{wanted}":
            fault(key, "led to", reached)
    page.keyboard.press("n")
    if not page.evaluate("document.documentElement.classList.contains('notes')"):
        fault("N does not show the notes")


def main():
    """Check every page of a folder; the exit status says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default=None, help="the browser's program (default: playwright's own)")
    parser.add_argument("--only", default="", help="only pages whose name holds this")
    parser.add_argument("--shots", type=Path, default=None, help="keep pictures of all pages here")
    parser.add_argument("--widths", type=int, nargs="+", default=[1280, 400])
    given = parser.parse_args()
    files = sorted(file for file in given.folder.resolve().rglob("*.html") if given.only in file.name)
    faults, formulas = [], 0
    if given.shots:
        given.shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        for width in given.widths:
            scheme = "light" if width == given.widths[0] else "dark"
            page = browser.new_page(viewport={"width": width, "height": 720}, color_scheme=scheme)
            page.set_default_timeout(120_000)                            # a busy machine is no fault of the page
            watch(page, faults)
            for file in files:
                known = len(faults)
                formulas += check(page, file, width, faults, given.shots)
                print(f"{file.name} at {width}:", *(faults[known:] or ["well"]), sep="\n  ", flush=True)
        browser.close()
    print("\n".join(faults) or "all is well", f"\n{len(files)} pages, {formulas} formulas, {len(faults)} faults")
    return 1 if faults or not files else 0


def watch(page, faults):
    """Note every request that leaves the machine or fails, and everything that the console reports."""
    def leaves(route):
        faults.append(f"a request leaves the machine: {route.request.url}")
        route.abort()
    page.route(lambda url: not url.startswith(("file:", "data:")), leaves)
    page.on("console", lambda message: faults.append(f"{page.url}: {message.text}")
            if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("requestfailed", lambda request: faults.append(f"not there: {request.url}")
            if "ABORTED" not in (request.failure or "") else None)       # given up, for the page was turned


if __name__ == "__main__":
    sys.exit(main())
