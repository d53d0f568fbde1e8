"""The symbol tasks: answers by an independent solver, splits, sizes, errors."""

import numpy as np
import pytest

from k3_scratch.tasks.mqar import Mqar
from k3_scratch.tasks.palindrome import Palindrome
from k3_scratch.tasks.registry import TASKS, task
from k3_scratch.tasks.rewrite import Rewrite
from k3_scratch.tasks.right_after import RightAfter
from k3_scratch.tasks.splits import SPLITS
from k3_scratch.tasks.stack import Stack

SMALL = [Mqar(keys=7, values=5, pairs=4, queries=3), Rewrite(keys=3, values=5, writes=7, queries=2),
         RightAfter(keys=5, values=4, pairs=3, filler=4, queries=2), Palindrome(symbols=5, size=6),
         Stack(stacks=2, symbols=3, operations=7)]
DEFAULT = [Mqar(), Rewrite(), RightAfter(), Palindrome(), Stack()]
EACH = pytest.mark.parametrize("task", SMALL + DEFAULT, ids=repr)


def names_of(task, row):
    return [task.symbol(token) for token in row.tolist()]


def shown_of(task):
    """How many tokens at the start decide the split."""
    return {Mqar: lambda: 2 * task.pairs, Rewrite: lambda: 2 * task.writes, Palindrome: lambda: task.size,
            RightAfter: lambda: 2 * task.pairs + task.filler, Stack: lambda: task.length}[type(task)]()


def solve_pairs(names, shown):
    """Mqar and Rewrite: the newest value of each key that is asked after `shown` tokens."""
    memory = dict(zip(names[:shown:2], names[1:shown:2], strict=True))
    return [None] * shown + [memory[key] for key in names[shown:]]


def solve_right_after(names, shown):
    return [None] * shown + [names[names.index(key) + 1] for key in names[shown:]]


def solve_palindrome(names, shown):
    assert names[shown] == "|"
    return [None] * shown + names[:shown][::-1]


def solve_stack(names, _):
    stacks, wanted = {}, [None] * len(names)
    for place in range(0, len(names), 3):
        stack = stacks.setdefault(names[place + 1], [])
        if names[place] == "+":
            stack.extend(names[place + 2:place + 3])
        else:
            wanted[place + 1] = stack.pop()
            assert names[place + 2:place + 3] in ([], [wanted[place + 1]])      # fed back
    return wanted


SOLVERS = {Mqar: solve_pairs, Rewrite: solve_pairs, RightAfter: solve_right_after, Palindrome: solve_palindrome,
           Stack: solve_stack}


@EACH
def test_answers_agree_with_an_independent_solver(task):
    batch = task.batch(np.random.default_rng(0), 40)
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        found = [None if target < 0 else task.symbol(target) for target in targets.tolist()]
        assert found == SOLVERS[type(task)](names_of(task, tokens), shown_of(task))
        assert any(found)


@EACH
def test_shapes(task):
    batch = task.batch(np.random.default_rng(0), 6)
    for array in (batch.tokens, batch.targets, batch.documents):
        assert (array.shape, array.dtype) == ((6, task.length), np.int64)
    assert batch.tokens.min() >= 0
    assert max(batch.tokens.max(), batch.targets.max()) < task.vocab_size
    np.testing.assert_array_equal(batch.scored, batch.targets >= 0)
    assert not batch.family.any()
    assert not batch.documents.any()


@EACH
def test_same_seed_same_batch(task):
    one, two, other = (task.batch(np.random.default_rng(seed), 6) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.tokens, two.tokens)
    np.testing.assert_array_equal(one.targets, two.targets)
    assert (one.tokens != other.tokens).any()


@pytest.mark.parametrize("task", SMALL, ids=repr)
def test_splits_share_no_prompt(task):
    prompts = []
    for split in SPLITS:
        batch = task.batch(np.random.default_rng(0), 300, split)
        prompts.append({tuple(row) for row in window_of(batch)[:, :shown_of(task) + isinstance(task, Stack)].tolist()})
    assert not prompts[0] & prompts[1]
    assert not prompts[0] & prompts[2]
    assert not prompts[1] & prompts[2]


def window_of(batch):
    return np.hstack([batch.tokens, batch.targets[:, -1:]])


def test_every_key_is_written_and_asked_keys_differ():
    for made in (Mqar(), Rewrite(), RightAfter()):
        asked = made.batch(np.random.default_rng(0), 20).tokens[:, -made.queries:]
        assert all(len(set(row)) == made.queries for row in asked.tolist())
    writes = Rewrite().batch(np.random.default_rng(0), 20).tokens[:, :36:2]
    assert all(set(row) == set(range(6)) for row in writes.tolist())


def test_the_sizes_in_the_defaults():
    assert [made.length for made in DEFAULT] == [24, 42, 32, 20, 47]
    assert [made.vocab_size for made in DEFAULT] == [64, 12, 16, 17, 22]


def test_right_after_grows_by_filler_alone():
    longer = RightAfter(filler=238)
    assert longer.length == 256
    assert longer.vocab_size == RightAfter().vocab_size


@pytest.mark.parametrize("make, message", [
    (lambda: Mqar(keys=0), "keys must be a whole number, at least 1, but 0 came"),
    (lambda: Mqar(pairs=33), "pairs must be at most keys = 32, but 33 came"),
    (lambda: Mqar(queries=9), "queries must be at most pairs = 8, but 9 came"),
    (lambda: Rewrite(writes=5), "writes must be at least keys = 6, but 5 came"),
    (lambda: Rewrite(queries=7), "queries must be at most keys = 6, but 7 came"),
    (lambda: Rewrite(values=2.5), "values must be a whole number"),
    (lambda: Rewrite(values=True), "values must be a whole number"),
    (lambda: RightAfter(pairs=9), "pairs must be at most keys = 8, but 9 came"),
    (lambda: RightAfter(queries=7), "queries must be at most pairs = 6, but 7 came"),
    (lambda: RightAfter(filler=-1), "filler must be a whole number, at least 0, but -1 came"),
    (lambda: Palindrome(size=0), "size must be"),
    (lambda: Palindrome(symbols=0), "symbols must be"),
    (lambda: Stack(operations=1), "operations must be a whole number, at least 2, but 1 came"),
    (lambda: Stack(stacks=0), "stacks must be"),
    (lambda: task("poems"), "name must be one of corpus, mqar, rewrite, .* but 'poems' came"),
    (lambda: Rewrite().batch(np.random.default_rng(0), 0), "batch_size must be"),
    (lambda: Rewrite().batch(np.random.default_rng(0), 1, "dev"), "split must be one of train, validation, test"),
    (lambda: Palindrome(symbols=1, size=1).batch(np.random.default_rng(0), 1, "validation"), "the task is too small"),
])
def test_wrong_sizes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", list(TASKS))
def test_registry(name):
    made = task(name)
    batch = made.batch(np.random.default_rng(0), 2, "validation")
    assert batch.tokens.shape == (2, made.length)
    assert batch.tokens.max() < made.vocab_size
