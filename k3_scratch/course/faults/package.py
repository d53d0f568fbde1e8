"""The text part of this package as texts, and texts as a package: what a fault is put into and what runs it.

A *kit* is such a package, imported under a name of its own: `kit.layers.kda.kda_step`, `kit.model.K3`. Two kits share
nothing, and none of them touches `k3_scratch`.
"""

import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import re
import sys
from pathlib import Path

import k3_scratch

PACKAGE = Path(k3_scratch.__file__).parent
LAYERS = ("attention_residuals", "by_hand", "calls", "decay_gates", "experts", "feed_forward", "kda", "kda_attention",
          "kda_chunk", "kda_inputs", "kda_scan", "kda_solve", "kda_tiles", "latent_moe", "mla", "mla_attention",
          "precision", "quantile_balancing", "rms_norm", "router", "short_convolution", "situ", "two_phase",
          "unit_keys")
FILES = ("cache.py", "config.py", "generate.py", "model.py", *(f"layers/{name}.py" for name in LAYERS),
         "training/muon.py", "training/schedule.py")
_FOLDERS = {"__init__.py": '"""The text part of K3: begin with model.py."""\n',
            "layers/__init__.py": '"""One operation a file."""\n',
            "training/__init__.py": '"""The optimiser and its learning rate."""\n'}
_IMPORT = re.compile(r"^(\s*from )k3_scratch\.([\w.]+)( import )", re.MULTILINE)


@functools.cache
def package_texts():
    """{file: text} of the healthy package, imports among these files written as relative ones. Do not change it."""
    return {**_FOLDERS, **{name: _relative(name, (PACKAGE / name).read_text(encoding="utf-8")) for name in FILES}}


def _relative(name, text):
    """`from k3_scratch.layers.kda import` -> `from .kda import` in a file of layers/; other imports stay."""
    here = name.split("/")[:-1]

    def written(match):
        there = match[2].split(".")
        if "/".join(there) + ".py" not in FILES:
            return match[0]
        shared = 1 if here and here[0] == there[0] and len(there) > 1 else 0
        return f"{match[1]}{'.' * (1 + len(here) - shared)}{'.'.join(there[shared:])}{match[3]}"
    return _IMPORT.sub(written, text)


def load(texts, name=None, folder=None):
    """Import {file: text} as a package, whatever was imported before.                                -> module

    name     under which it stays in sys.modules; None: it leaves no trace there
    folder   where the files lie, for error messages; None: they lie nowhere
    Raises what the texts raise: SyntaxError, ImportError, ...
    """
    kept = name is not None
    name = name or "k3_kit_" + hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:12]
    _forget(name)
    finder = _Texts(name, texts, folder)
    sys.meta_path.insert(0, finder)
    try:
        package = importlib.import_module(name)
        for file in sorted(texts):
            importlib.import_module(finder.module_of(file))
    except BaseException:
        kept = False
        raise
    finally:
        sys.meta_path.remove(finder)
        if not kept:
            _forget(name)
    return package


def _forget(name):
    for module in [module for module in sys.modules if module == name or module.startswith(name + ".")]:
        del sys.modules[module]


class _Texts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and runs the modules of one package in a dict of texts: no file compiled by an earlier run is read."""

    def __init__(self, name, texts, folder):
        self.texts, self.folder = texts, folder
        self.files = {self.module_of(file, name): file for file in texts}
        self.modules = {file: module for module, file in self.files.items()}

    def module_of(self, file, name=None):
        if name is None:
            return self.modules[file]
        return ".".join([name, *file.removesuffix(".py").split("/")]).removesuffix(".__init__")

    def find_spec(self, fullname, path=None, target=None):
        file = self.files.get(fullname)
        if file is None:
            return None
        origin = str(Path(self.folder) / file) if self.folder else f"<{file}>"
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=file.endswith("__init__.py"))
        spec.has_location = self.folder is not None
        return spec

    def exec_module(self, module):
        exec(_compiled(self.texts[self.files[module.__name__]], module.__spec__.origin), module.__dict__)


@functools.lru_cache(maxsize=1024)
def _compiled(text, origin):
    return compile(text, origin, "exec")


@functools.cache
def healthy():
    """The kit without a fault."""
    return load(package_texts())
