'''The course: what its notebooks call, and how they are written.

Notebooks call `check`, `progress`, `show`, `lab_table` and `results` (and `strict` in tests). The rest of this text is
the authors' guide. What to copy: `notebooks/src/01_delta_rule_rnn.py` with `course/checks/ch01.py`.

**Files of chapter NN.** `notebooks/src/NN_name.py` (the master: the only text edited by hand; names in `chapters.py`),
`k3_scratch/course/checks/chNN.py` (its exercises), new pictures as functions of arrays in `k3_scratch/plots/`.
`k3 notebooks NN` builds, runs and writes both notebooks; `k3 notebooks --check` says what is stale. The tests in
`tests/course/` take up every master and every check module by themselves.

**Header.** The master begins with jupytext's YAML header; the head of the notebook is made from it:

    # ---
    # jupyter:
    #   k3:
    #     title: The delta-rule RNN                 # as in chapters.py
    #     minutes: {read: 40, exercises: 60, run: 40 seconds}   # measured; run: as it should read
    #     needs: ["matrix products", "chapter 00"]  # each a phrase
    #     objectives: ["derive ...", "write ..."]   # "Afterwards you can" derive ...
    #     data: [figures/results/NAME.json]         # files it reads beside its imports; leave out when none
    # ---

**Cells** begin with `# %%` (code) or `# %% [markdown]`. The first is markdown, `# 01 · The delta-rule RNN` and the
opening question; below the title the builder puts minutes, objectives, needs. The second is the one cell that imports
(all imports; seeds are arguments, no global state). The last is markdown, the summary; the builder adds the links to
the chapters before and after. Code cells have at most 25 lines of at most 110 characters, no magics, no shell, and give
the same when run twice.
Tags, as in `# %% tags=["remove"]`:

    remove          runs when the solution is built and tested, shown nowhere: asserts that hold numbers of the prose
    solution-only   student-only                                    shown in one of the two notebooks
    hint            markdown that is folded away

**An exercise** is four cells in this order, nothing between them:

    # %% [markdown]
    # ### Exercise 1.3: one write                    the builder adds minutes and difficulty under the heading
    # What to do, with shapes.

    # %% [markdown] tags=["hint"]
    # A sentence that helps and does not solve.

    # %% id="1.3" minutes=10 difficulty=2            difficulty 1, 2 or 3
    def my_delta_step(state, k, v, beta):
        """One write.   state [K, V], k [K], v [V], beta -> [K, V]"""
        # BEGIN SOLUTION
        recalled = k @ state
        return state + beta * np.outer(k, v - recalled)
        # END SOLUTION

    # %%
    check("1.3", my_delta_step)

A solution ends with `return ...` (the stub is `return ...`) or, outside a function, with `name = ...` (the stub is
`name = ...`). It uses its arguments and the import cell, nothing else of the notebook. What the student writes is
called `my_...`; every other cell uses the package's function of the plain name, never `my_...`: so Run All reaches the
end whatever has been written. A value exercise is `my_answer = ...` with `check("1.1", my_answer)`.

**Checks.** `checks/chNN.py` has `EXERCISES`, a tuple of `Exercise` (fields in `exercise.py`): the package's solution;
what it takes and returns, in letters (None for an argument without a shape); cases (the first for paper, `paper=True`,
then at least two regimes with sizes that all differ); properties; at least three mistakes, each a wrong function and a
hint that names it ("You decayed after the write."). Include the faults of public rebuilds that belong to the subject
(see `tests/test_cases.py`). The machine itself deals with `...`, None, nan, wrong shapes and dtypes, exceptions, wrong
arguments, and arguments changed in place. The tests feed every wrong function and demand its own hint, and feed the
solution of the master: write no tests for exercises. A check module that grows beyond 300 lines puts its wrong
functions into `checks/chNN_wrong.py`.

**Pictures.** `show(picture(arrays), "alt text, a sentence", name="01_capacity")`, at the end of a code cell; then a
markdown cell that begins with one sentence saying what to see. With a name the builder also saves figures/NAME.png.

**Results of the lab.** An experiment that is in figures/results/lab_NAME.json takes one line of code,
`lab_table("NAME")` (or a part of it, `lab_table("NAME", values=["..."], sizes=["..."])`), a markdown cell that begins
with one sentence saying what to see and holds the picture, `![](../figures/lab_NAME.png)` with nothing between the
brackets (the builder puts the result's own text there), and the line `figures/results/lab_NAME.json` under `data` in
the header.

**Numbers.** Each says where it comes from: (report), (derived), (measured here) or (toy). A number in the prose that
comes from a run is asserted in a cell tagged `remove` behind it. Printed times differ from run to run: call them so.

**Links.** Relative to `notebooks/`: `[chapter 03](03_chunks.ipynb)` is a link once chapter 03 is written, text before.
`results("NAME")` reads figures/results/NAME.json from every working folder; never open a file by a relative path.
'''

from k3_scratch.course.checker import check, strict
from k3_scratch.course.display import results, show
from k3_scratch.course.lab_results import lab_table
from k3_scratch.course.progress import progress

__all__ = ["check", "lab_table", "progress", "results", "show", "strict"]
