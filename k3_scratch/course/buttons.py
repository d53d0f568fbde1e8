"""Buttons that open a chapter on a rented machine: links under two pictures of our own, from one address.

The address of the repository stands in pyproject.toml, `[project.urls] Repository`, and nowhere else. While it is
missing there are no buttons.
"""

import re
import tomllib
from pathlib import Path
from urllib.parse import quote

BRANCH = "main"
# words, picture, address; {path} as Colab wants it, {quoted} as Binder does
BUTTONS = (("Open in Colab", "figures/open_in_colab.svg",
            "https://colab.research.google.com/github/{repository}/blob/" + BRANCH + "/{path}"),
           ("Launch Binder", "figures/launch_binder.svg",
            "https://mybinder.org/v2/gh/{repository}/" + BRANCH + "?labpath={quoted}"))


def repository(project):
    """OWNER/NAME of the repository that a pyproject.toml names, "" when it names none.              path -> str

    Raises ValueError for an address that is none of GitHub's, which both buttons need.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "pyproject.toml"
    >>> _ = file.write_text('[project.urls]\\nRepository = "https://github.com/me/mine"', encoding="utf-8")
    >>> repository(file)
    'me/mine'
    """
    urls = tomllib.loads(Path(project).read_text(encoding="utf-8")).get("project", {}).get("urls", {})
    address = urls.get("Repository", "")
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address)
    if address and not found:
        raise ValueError(f"Repository in {project} must be like https://github.com/OWNER/NAME, but {address!r} came")
    return found[1] if found else ""


def buttons(repository, path):
    """Markdown of both buttons for one notebook.   repository "OWNER/NAME", path "notebooks/01_....ipynb"   -> str"""
    return " ".join(f"[![{words}]({picture})]"
                    f"({address.format(repository=repository, path=path, quoted=quote(path, safe=''))})"
                    for words, picture, address in BUTTONS)
