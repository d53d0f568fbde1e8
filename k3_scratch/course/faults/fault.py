"""What a planted fault is: exact text in place of exact text, so that it cannot rot unnoticed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from k3_scratch.course.faults.package import package_texts


class FaultError(ValueError):
    """A fault does not fit the package's files any more; the message names the fault and the file."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and how one sees it."""

    id: str                              # "no_unit_keys"
    level: int                           # 1 to 5: how well it hides
    part: str                            # "kda", "moe", ...: one of PARTS
    technique: str                       # one of TECHNIQUES in techniques.py that sees it; others may too
    what: str                            # what it really is, one sentence; told when it is mended
    file: str                            # "layers/kda.py": the one file it is in
    changes: tuple[tuple[str, str], ...]  # ((old text, new text), ...): each old text occurs exactly once in the file
    probe: Callable | None = None        # kit -> tensors and numbers that differ from the healthy kit's by this alone


def planted(faults, texts=None):
    """The package's texts with the faults in them.                                              -> {file: text}

    texts   what to put them into; None: the healthy package.  Raises FaultError when an old text is not there once.
    """
    texts = dict(package_texts() if texts is None else texts)
    for fault in faults:
        for old, new in fault.changes:
            count = texts[fault.file].count(old)
            if count != 1:
                raise FaultError(f"{fault.id}: its old text must stand in {fault.file} once, but it stands there "
                                 f"{count} times: {old.strip().splitlines()[0]!r}")
            texts[fault.file] = texts[fault.file].replace(old, new)
    return texts


class Table:
    """The faults of one module, each with its probe: `@table.fault(id=..., ...)` above the probe."""

    def __init__(self):
        self.faults = []

    def fault(self, **fields):
        """Enter a fault whose probe is the decorated function."""
        made = Fault(**fields)

        def enter(probe):
            self.faults.append(replace(made, probe=probe))
            return probe
        return enter
