"""Planted faults: what the bug hunt of chapter 13 puts into a healthy K3, and what finds it.

    fault.py       what a fault is: exact text in place of exact text, in one file
    package.py     the package as texts, texts as a package (a kit)
    in_*.py        the faults, by where they live, each with a probe that it alone disturbs
    techniques.py  what the course teaches to look for faults with; properties.py has the single questions
    standing.py    how many faults are left in a folder of texts, and what is newly wrong
    alive.py       models and inputs in which every part matters

Every one of them passes tests of shapes. Whoever wants to hunt reads `in_*.py` afterwards.
"""

import random

from k3_scratch.course.faults.in_ffn import FFN
from k3_scratch.course.faults.in_kda import KDA
from k3_scratch.course.faults.in_mla import MLA
from k3_scratch.course.faults.in_model import MODEL

FAULTS = {fault.id: fault for table in (KDA, MLA, FFN, MODEL) for fault in table.faults}
LEVELS = (1, 2, 3, 4, 5)
WARM_UP = FAULTS["no_mix_at_the_output"]         # mended together in chapter 13; in no exam


def draw(seed):
    """The faults of one exam: one of each level, no two in one file, no part of the model twice.      -> (Fault, ...)

    seed   a whole number from 0 on: the same seed, the same faults.  Raises ValueError for anything else.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be a whole number from 0 on, but {seed!r} came")
    chance, chosen = random.Random(f"hunt {seed}"), []
    for level in LEVELS:
        files, parts = {fault.file for fault in chosen}, {fault.part for fault in chosen}
        chosen.append(chance.choice([fault for fault in FAULTS.values() if fault.level == level
                                     and fault is not WARM_UP and fault.file not in files and fault.part not in parts]))
    return tuple(chosen)
