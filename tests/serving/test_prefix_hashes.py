"""Names of prefixes: equal exactly where everything up to there is equal."""

import numpy as np
import pytest

from k3_scratch.serving.hashes import block_hashes


@pytest.mark.parametrize("block", [1, 3, 4, 7])
def test_a_name_for_every_whole_block(block):
    tokens = list(range(100, 121))
    for length in range(len(tokens) + 1):
        names = block_hashes(tokens[:length], block)
        assert len(names) == length // block
        assert names == block_hashes(tokens, block)[:length // block]    # what follows changes no earlier name
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("block", [1, 3, 5])
def test_one_other_token_changes_its_block_and_all_later_ones_and_nothing_else(block):
    rng = np.random.default_rng(block)
    tokens = rng.integers(50, size=22).tolist()
    names = block_hashes(tokens, block)
    for position in range(22):
        other = [*tokens]
        other[position] = 50
        same = [a == b for a, b in zip(names, block_hashes(other, block), strict=True)]
        assert same == [i < position // block for i in range(len(names))]


def test_the_same_block_after_another_prefix_has_another_name():
    """Its latents are other numbers: every layer above the first has seen the prefix."""
    a, b = block_hashes([1, 2, 3, 7, 8, 9], 3), block_hashes([4, 5, 6, 7, 8, 9], 3)
    assert a[1] != b[1]
    assert block_hashes([7, 8, 9], 3)[0] not in (a[1], b[1])
    assert len(set(block_hashes([7, 8, 9] * 4, 3))) == 4                 # nor is a repeated block the same one
    assert block_hashes([1, 2, 3, 4], 4) != block_hashes([1, 2, 3, 4], 2)[1:]


def test_a_picture_behind_a_token_is_part_of_the_name():
    tokens = [5, 259, 259, 6, 7, 8, 9, 1]
    plain = block_hashes(tokens, 2)
    cat, dog = (block_hashes(tokens, 2, {1: picture, 2: b"x"}) for picture in (b"cat", b"dog"))
    assert len({plain[0], cat[0], dog[0]}) == 3 and len({plain[3], cat[3], dog[3]}) == 3
    late = block_hashes(tokens, 2, {4: b"cat"})
    assert late[:2] == plain[:2] and late[2] != plain[2]
    assert block_hashes(tokens, 2, {1: b"ab", 2: b"c"}) != block_hashes(tokens, 2, {1: b"a", 2: b"bc"})
    assert block_hashes(tokens, 4, {1: b"ab"}) != block_hashes(tokens, 4, {2: b"ab"})
    assert block_hashes(tokens, 2, {}) == plain


def test_a_block_of_nothing_is_refused():
    with pytest.raises(ValueError, match="block_hashes: block must be at least 1, but 0 came"):
        block_hashes([1], 0)
