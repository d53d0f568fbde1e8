"""The bug hunt of chapter 13: a folder of readable files with faults in them, and how many are left.

    hunt = Hunt(1)             # writes the folder hunt_1, unless it is there already
    hunt.package()             # the folder as a package, loaded anew: hunt.package().layers.kda.kda_step
    hunt.left()                # hunt 1: 5 of 5 faults left

The files are those of `k3_scratch`, with their imports made relative. Nothing is kept between two calls but the folder.
"""

import os
import re
import tempfile
from pathlib import Path

from k3_scratch.course.display import in_a_notebook
from k3_scratch.course.faults import WARM_UP, draw
from k3_scratch.course.faults.alive import alive
from k3_scratch.course.faults.fault import planted
from k3_scratch.course.faults.package import load, package_texts
from k3_scratch.course.faults.standing import standing
from k3_scratch.files import write_text

_PLACE = "K3_HUNTS"          # where hunts are written; set but empty: into a folder that goes with the process


class HuntError(ValueError):
    """A hunt cannot be made or changed as asked; the message says why."""


class Hunt:
    """One hunt.

    seed     a whole number: which faults are planted, one of each of five levels
    folder   where; None: hunt_SEED beside the notebook, in a script a temporary folder. What is there is kept, with all
             edits: to begin anew, delete the folder or give it another name.
    """

    def __init__(self, seed, folder=None):
        self.name, self._faults = str(seed), draw(seed)
        self._open(folder)

    @classmethod
    def warm_up(cls):
        """A hunt after one easy fault, in a temporary folder, new at every call."""
        made = object.__new__(cls)
        made.name, made._faults = "warm-up", (WARM_UP,)
        made._temporary = tempfile.TemporaryDirectory(prefix="k3-hunt-")
        made._open(Path(made._temporary.name) / "hunt_warm_up")
        return made

    def __repr__(self):
        return f"Hunt {self.name}: {len(self.files())} files in the folder {self.folder.name}"

    def _open(self, folder):
        self.folder = Path(folder) if folder else self._default()
        if (self.folder / "model.py").exists():
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            raise HuntError(f"the folder {self.folder.name} holds something else: give it another name")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".hunt-", dir=self.folder.parent) as place:
            whole = Path(place) / "whole"
            for file, text in planted(self._faults).items():
                (whole / file).parent.mkdir(parents=True, exist_ok=True)
                write_text(whole / file, text)
            if self.folder.exists():
                self.folder.rmdir()                                      # empty, see above
            os.replace(whole, self.folder)

    def _default(self):
        if os.environ.get(_PLACE) or (_PLACE not in os.environ and in_a_notebook()):
            return Path(os.environ.get(_PLACE) or Path.cwd()) / f"hunt_{self.name}"
        self._temporary = tempfile.TemporaryDirectory(prefix="k3-hunt-")
        return Path(self._temporary.name) / f"hunt_{self.name}"

    def files(self):
        """Names of the folder's Python files, as in `read`.                                            -> [str]"""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.py")
                      if not any(part.startswith(".") for part in path.relative_to(self.folder).parts))

    def read(self, file):
        """The text of one file now. Raises HuntError for a name that is not there."""
        if file not in self.files():
            raise HuntError(f"file must be one of {', '.join(self.files())}, but {file!r} came")
        return (self.folder / file).read_text(encoding="utf-8")

    def lines(self, file, word, around=4):
        """Print the first line of a file that holds a word, with its number and the lines around it."""
        lines = self.read(file).split("\n")
        found = next((i for i, line in enumerate(lines) if word in line), None)
        if found is None:
            raise HuntError(f"word must occur in {file}, but {word!r} came")
        for i in range(max(0, found - around), min(len(lines), found + around + 1)):
            print(f"{i + 1:4} {lines[i]}")

    def edit(self, file, old, new):
        """Put `new` in the place of `old`, which must stand in the file once; done already, nothing happens."""
        text = self.read(file)
        if new in text and old not in text.replace(new, ""):
            return
        if text.count(old) != 1:
            raise HuntError(f"old must stand in {file} once, but it stands there {text.count(old)} times")
        write_text(self.folder / file, text.replace(old, new))

    def package(self):
        """The folder as a package, as it is now. Raises what its files raise."""
        name = "k3_" + re.sub(r"\W", "_", self.folder.name)
        return load(self._texts(), name=name, folder=self.folder)

    def model(self, seed=0, **changes):
        """A small model of this package with numbers in every vector, float64; changes: fields of its configuration."""
        return alive(self.package(), seed, **changes)

    def left(self):
        """Print how many of the planted faults are left, and whether something else has become wrong."""
        found = self.standing()
        if found.error:
            print(f"hunt {self.name}: {found.error}")
            return
        print(f"hunt {self.name}: {len(found.left)} of {len(self._faults)} faults left")
        for file in found.broken:
            print(f"  in {file} something is wrong now that was right")

    def standing(self):
        """What `left` prints, for programs.                                                          -> Standing"""
        return standing(self._texts(), self._faults)

    def reveal(self):
        """Print what the mended faults were; the others stay covered."""
        left = self.standing().left
        for fault in self._faults:
            print(f"level {fault.level}  " + ("still covered" if fault in left else f"{fault.file}: {fault.what}"))

    def give_up(self):
        """Put the package's own text into every file that holds a fault, and print what they were."""
        for fault in self._faults:
            write_text(self.folder / fault.file, package_texts()[fault.file])
        self.reveal()

    def _texts(self):
        return {file: self.read(file) for file in self.files()}
