"""The fourteen chapters, in order, and where their files are.

A chapter is known by its two digits ("03"). Its master is `notebooks/src/NN_name.py`, its notebook for readers
`notebooks/NN_name.ipynb`, the one with solutions `notebooks/solutions/NN_name.ipynb`, its checks
`k3_scratch/course/checks/chNN.py`.
"""

from pathlib import Path

import k3_scratch

ROOT = Path(k3_scratch.__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"

# file name without ending, title
CHAPTERS = (
    ("00_the_map", "The map"),
    ("01_delta_rule_rnn", "The delta-rule RNN"),
    ("02_kimi_delta_attention", "Kimi Delta Attention"),
    ("03_chunks", "Chunks"),
    ("04_multi_head_latent_attention", "Multi-head latent attention"),
    ("05_stable_latent_moe", "Stable LatentMoE"),
    ("06_attention_residuals", "Attention residuals"),
    ("07_nope", "NoPE"),
    ("08_miniature", "The miniature K3"),
    ("09_training", "Training it"),
    ("10_native_vision", "Native vision"),
    ("11_serving", "Serving"),
    ("12_scaling_up", "Up to 2.8 T"),
    ("13_bug_hunt", "The bug hunt"),
)
TITLES = dict(CHAPTERS)


def masters(folder=None):
    """The masters that are written, in order of chapters.                                            -> [Path]"""
    return sorted(Path(folder or NOTEBOOKS / "src").glob("[0-9][0-9]_*.py"))


def chapter_of(exercise_id):
    """The two digits of an exercise's chapter. Raises ValueError for what is no id.

    >>> chapter_of("3.12")
    '03'
    """
    chapter, dot, number = str(exercise_id).partition(".")
    if not (dot and chapter.isdigit() and number.isdigit()):
        raise ValueError(f"id must be like \"3.2\" (chapter, dot, number), but {exercise_id!r} came")
    return f"{int(chapter):02d}"
