"""The index: what is found, what is counted, what goes first."""

import numpy as np
import pytest

from k3_scratch.serving.index import PrefixIndex

STATE, BLOCK = 100, 7


def add(index, names, state_bytes=STATE):
    return index.add(tuple(names), f"state {names}", state_bytes, BLOCK, lambda i: f"latents {names[:i + 1]}")


def paths(text):
    """"abc" -> ("a", "ab", "abc"): names that contain the whole prefix, as hashes do."""
    return [text[:i + 1] for i in range(len(text))]


def kept(index):
    return {names[-1] for names in (c.names for c in index.checkpoints.values())}


def consistent(index):
    """Bytes and users are those of what is there, and every checkpoint has all its blocks."""
    users = [name for checkpoint in index.checkpoints.values() for name in checkpoint.names]
    assert {name: block.users for name, block in index.blocks.items()} == {name: users.count(name) for name in users}
    assert index.nbytes == (sum(c.nbytes for c in index.checkpoints.values())
                            + sum(block.nbytes for block in index.blocks.values()))
    assert index.budget is None or index.nbytes <= index.budget
    assert index.peak >= index.nbytes
    for name, checkpoint in index.checkpoints.items():
        assert checkpoint.names[-1] == name and len(index.latents(checkpoint)) == len(checkpoint.names)


def test_the_longest_prefix_is_found():
    index = PrefixIndex()
    assert index.longest(paths("abcd")) is None and index.longest([]) is None
    assert add(index, paths("ab")) and add(index, paths("abcd"))
    for text, found in (("abcdef", "abcd"), ("abcd", "abcd"), ("abcx", "ab"), ("ab", "ab"), ("a", None), ("xb", None)):
        checkpoint = index.longest(paths(text))
        assert (checkpoint and checkpoint.names[-1]) == found
    checkpoint = index.longest(paths("abcd"))
    assert checkpoint.state == f"state {paths('abcd')}"
    # the first two blocks were there already; they are not made again
    assert index.latents(checkpoint) == [f"latents {paths('abcd')[:i + 1]}" for i in range(4)]
    consistent(index)


def test_shared_blocks_are_counted_once_and_go_with_their_last_user():
    index = PrefixIndex(3 * STATE + 6 * BLOCK)
    add(index, paths("abc"))
    add(index, paths("abde"))
    assert index.nbytes == 2 * STATE + 5 * BLOCK and len(index.blocks) == 5
    add(index, paths("x"))
    assert index.nbytes == index.budget == index.peak
    add(index, paths("y"))                                               # "abc" goes, and of its blocks only the last
    assert kept(index) == {"abde", "x", "y"} and set(index.blocks) == {"a", "ab", "abd", "abde", "x", "y"}
    assert index.evicted == 1
    consistent(index)


def test_the_least_recently_used_goes_first():
    index = PrefixIndex(3 * (STATE + BLOCK))
    for name in "pqr":
        add(index, [name])
    index.longest(["p"])                                                 # used by finding it
    add(index, ["q"])                                                    # used by adding it again
    assert index.nbytes == index.budget
    add(index, ["s"])
    assert kept(index) == {"p", "q", "s"}
    index.longest(["nothing"])
    add(index, ["t"])
    assert kept(index) == {"q", "s", "t"}
    consistent(index)


def test_what_does_not_fit_is_refused_and_throws_nobody_out():
    index = PrefixIndex(2 * STATE + 4 * BLOCK)
    add(index, paths("ab"))
    assert not add(index, paths("x"), state_bytes=index.budget)
    assert not add(index, paths("abcdefgh"), state_bytes=2 * STATE)
    assert (index.refused, index.evicted, kept(index)) == (2, 0, {"ab"})
    assert add(index, paths("abcd"), state_bytes=index.budget - 4 * BLOCK)          # exactly all of it
    assert kept(index) == {"abcd"} and index.nbytes == index.budget
    consistent(index)


def test_its_own_beginning_is_not_thrown_out_of_a_new_checkpoint():
    """Room is made by throwing out the checkpoint that shares the beginning, but the beginning itself stays."""
    index = PrefixIndex(STATE + 4 * BLOCK)
    made = []
    add(index, paths("abc"))
    assert index.add(tuple(paths("abcd")), "new", STATE, BLOCK, lambda i: made.append(i) or f"made {i}")
    assert made == [3] and kept(index) == {"abcd"} and len(index.blocks) == 4
    consistent(index)


@pytest.mark.parametrize("budget", [0, STATE, STATE + 3 * BLOCK, 3 * STATE + 9 * BLOCK, 9 * STATE, None])
def test_many_random_additions(budget):
    rng, index, before = np.random.default_rng(3), PrefixIndex(budget), 0
    for _ in range(400):
        text = "".join(rng.choice(list("ab"), size=rng.integers(1, 7)))
        if rng.random() < 0.4:
            found = index.longest(paths(text))
            names = [name for name in paths(text) if name in index.checkpoints]
            assert (found and found.names[-1]) == (names[-1] if names else None)
        else:
            done = add(index, paths(text), int(rng.integers(STATE // 2, STATE)))
            assert done == (text in index.checkpoints)
        consistent(index)
        before = max(before, index.nbytes)
    assert index.peak == before
    index.clear()
    assert index.nbytes == 0 and not index.blocks and index.longest(paths("ab")) is None
    consistent(index)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="PrefixIndex: budget must be None or at least 0 bytes, but -1 came"):
        PrefixIndex(-1)
    with pytest.raises(ValueError, match="names must be those of at least one block"):
        PrefixIndex().add((), None, 1, 1)
