"""Lists of several lengths: the task of the experiment `ratio`."""

import numpy as np
import pytest

from k3_scratch.lab.lists_task import Lists
from k3_scratch.tasks.batch import IGNORED


@pytest.mark.parametrize("task", [Lists(), Lists(keys=9, values=3, pairs=(2, 7, 9)), Lists(5, 4, (3,))])
def test_every_key_of_a_list_is_asked_once_and_answered_with_its_value(task):
    rng, seen = np.random.default_rng(7), set()
    for _ in range(30):
        batch = task.batch(rng, 3)
        n = batch.tokens.shape[1] // 3
        seen.add(n)
        assert batch.tokens.max() < task.vocab_size and 3 * n <= task.length
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            facts = dict(zip(tokens[:2 * n:2], tokens[1:2 * n:2], strict=True))
            assert sorted(tokens[2 * n:]) == sorted(facts) and len(facts) == n
            assert targets == [IGNORED] * 2 * n + [facts[key] for key in tokens[2 * n:]]
    assert seen == set(task.pairs)


def test_splits_share_no_list():
    lists = [{tuple(row[:8]) for row in Lists(4, 2, (4,)).batch(np.random.default_rng(1), 200, split).tokens.tolist()}
             for split in ("train", "validation", "test")]
    assert all(lists) and not lists[0] & lists[1] and not lists[0] & lists[2] and not lists[1] & lists[2]


@pytest.mark.parametrize(("fields", "match"), [
    ({"pairs": ()}, "pairs must be a tuple with at least one number"), ({"pairs": 4}, "pairs must be a tuple"),
    ({"keys": 8, "pairs": (4, 9)}, "pairs must be at most keys = 8"), ({"values": 0}, "values must be")])
def test_impossible_sizes_are_refused(fields, match):
    with pytest.raises(ValueError, match=match):
        Lists(**fields)
