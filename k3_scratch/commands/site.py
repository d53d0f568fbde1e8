"""`k3 site` and `k3 slides`: the notebooks as web pages and as slides, for any browser, without the network."""

from pathlib import Path


def add_to(subparsers):
    site = subparsers.add_parser("site", help="write the notebooks as web pages that open without the network")
    site.add_argument("--out", default="build/site", metavar="FOLDER", help="(default %(default)s)")
    site.add_argument("--solutions", action="store_true", help="also the notebooks with solutions")
    site.add_argument("--notebooks", default="notebooks", metavar="FOLDER", help="(default %(default)s)")
    site.set_defaults(run=run)
    slides = subparsers.add_parser("slides", help="write a deck of slides a chapter, from its cells tagged `slide`")
    slides.add_argument("names", nargs="*", metavar="NAME", help="two digits or a file name (default: all)")
    slides.add_argument("--out", default="build/slides", metavar="FOLDER", help="(default %(default)s)")
    slides.add_argument("--notebooks", default="notebooks", metavar="FOLDER", help="(default %(default)s)")
    slides.set_defaults(run=_run_slides)


def run(arguments):
    site, slides = _modules()
    out = Path(arguments.out)
    decks = slides.write_decks(out / "slides", notebooks=arguments.notebooks, site="..")
    written = site.build_site(out, arguments.notebooks, arguments.solutions,
                              {stem: f"slides/{address}" for stem, (address, _) in decks.items()})
    print(f"{out / 'index.html'}: {written['pages']} pages and slides of {len(decks)} chapters, "
          f"{written['bytes'] / 1e6:.1f} MB")


def _run_slides(arguments):
    out = Path(arguments.out)
    decks = _modules()[1].write_decks(out, arguments.names, arguments.notebooks)
    if not decks:
        raise ValueError("no notebook has cells tagged `slide`: there is nothing to show")
    for address, number in decks.values():
        print(f"{out / address}: {number} slides")


def _modules():
    try:
        from k3_scratch.course import site, slides
    except ImportError as error:
        raise ValueError(f"this needs {error.name}: pip install -r requirements-authors.txt") from error
    return site, slides
