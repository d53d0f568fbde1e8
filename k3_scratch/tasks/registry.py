"""All tasks by name, each with its default sizes."""

from k3_scratch.tasks.arguments import need
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.tasks.mqar import Mqar
from k3_scratch.tasks.palindrome import Palindrome
from k3_scratch.tasks.rewrite import Rewrite
from k3_scratch.tasks.right_after import RightAfter
from k3_scratch.tasks.stack import Stack

TASKS = {
    "corpus": Corpus,               # six families of short texts
    "mqar": Mqar,                   # many keys asked at once
    "rewrite": Rewrite,             # the newest value counts
    "right_after": RightAfter,      # order in filler
    "palindrome": Palindrome,       # backwards
    "stack": Stack,                 # last in, first out
}


def task(name):
    """The task called `name`, with `vocab_size`, `length` and `batch(rng, batch_size, split)`.

    >>> task("rewrite")
    Rewrite(keys=6, values=6, writes=18, queries=6)
    """
    need(name in TASKS, "name", "one of " + ", ".join(TASKS), name)
    return TASKS[name]()
