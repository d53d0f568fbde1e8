"""What the lab has measured, on a page of the course: a short table, the verdicts, and a text for the picture.

It reads the results (figures/results/lab_NAME.json) alone and imports nothing of the lab.
"""

import ast

from k3_scratch.analysis.spread import brief_table, seeds_text
from k3_scratch.course.display import in_a_notebook, results


def lab_table(name, *, values=None, sizes=None, variants=None):
    """Show what an experiment of the lab came to: seeds, set-up, table, and what became of each claim.

    name      "capacity": figures/results/lab_capacity.json, which the master's header names too, under `data`
    values, sizes, variants   the part of the table that the page needs, in its order; None: all of it
    In a notebook this is Markdown below the cell, in a script it is printed. ValueError names what is not there.
    """
    text = lab_text(results(f"lab_{name}"), values=values, sizes=sizes, variants=variants)
    if not in_a_notebook():
        print(text)
        return
    from IPython.display import display
    display({"text/markdown": text, "text/plain": text}, raw=True)


def lab_text(result, *, values=None, sizes=None, variants=None):
    """The same as Markdown.                                             result: the JSON as a dict -> str"""
    runs = seeds_text(result) + (", mean ± standard deviation" if result["seeds"] > 1 else "")
    head = f"**Measured by the lab: {result['title']}** ({runs}; `k3 experiment {result['name']}`)"
    claims = "".join(f"- **{verdict['word']}**: {claim_of(claim)} ({verdict['sentence'].rsplit(', ', 1)[-1]})\n"
                     for claim, verdict in zip(result["claims"], result["verdicts"], strict=True))
    table = brief_table(result, values, sizes, variants)
    setup = f"*{result['setup'].strip()}*"
    return "\n".join([head, "", setup, "", table, "What had been expected, and what became of it:", "", claims])


def claim_of(text):
    """What a claim says, in words, out of how the result stores it.

    >>> claim_of("Within(says='all is well', value='v', variants=('a',), low=-inf, high=2.0, sizes=())")
    'all is well'
    """
    says, = (item.value for item in ast.parse(text, mode="eval").body.keywords if item.arg == "says")
    return ast.literal_eval(says)


def alt_text(name):
    """The sentences that stand for the picture figures/lab_NAME.png where it cannot be seen.               -> str"""
    return results(f"lab_{name}")["alt"].replace("[", "(").replace("]", ")")
