"""Text files: disjoint ranges, windows inside them, targets everywhere, errors that name the file."""

import numpy as np
import pytest

from k3_scratch.tasks.splits import SPLITS
from k3_scratch.tasks.text import TextFile


@pytest.fixture
def counting(tmp_path):
    """A file of 250 bytes in which each byte tells its place; not valid UTF-8."""
    path = tmp_path / "bytes.bin"
    path.write_bytes(bytes(range(250)))
    return path


def test_ranges_cover_the_file_once(counting):
    ranges = TextFile(counting, length=8).ranges
    assert ranges == {"train": (0, 200), "validation": (200, 225), "test": (225, 250)}


@pytest.mark.parametrize("split", SPLITS)
def test_windows_never_leave_their_range(counting, split):
    task = TextFile(counting, length=8)
    batch = task.batch(np.random.default_rng(0), 500, split)
    start, end = task.ranges[split]
    assert batch.tokens.min() == start
    assert batch.targets.max() == end - 1
    np.testing.assert_array_equal(batch.targets, batch.tokens + 1)
    assert batch.scored.all()
    assert batch.tokens.shape == (500, 8)
    assert not batch.family.any()
    assert not batch.documents.any()


def test_same_seed_same_windows(counting):
    task = TextFile(counting, length=8)
    one, two = (task.batch(np.random.default_rng(4), 5).tokens for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_smallest_file(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(b"x" * 90)
    assert TextFile(path, length=8).batch(np.random.default_rng(0), 2, "test").tokens.shape == (2, 8)
    path.write_bytes(b"x" * 80)
    with pytest.raises(ValueError, match=r"at least 90 bytes .* a window is 9\), but '.*small.txt' has 80"):
        TextFile(path, length=8)


def test_wrong_arguments(counting, tmp_path):
    with pytest.raises(ValueError, match="path must be a readable file, but '.*missing.txt' came"):
        TextFile(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="path must be a readable file"):
        TextFile(tmp_path)
    with pytest.raises(ValueError, match="length must be"):
        TextFile(counting, length=0)
    task = TextFile(counting, length=8)
    with pytest.raises(ValueError, match="family must be None for a text file, but 'copy' came"):
        task.batch(np.random.default_rng(0), 1, family="copy")
    with pytest.raises(ValueError, match="split must be one of"):
        task.batch(np.random.default_rng(0), 1, "dev")
    with pytest.raises(ValueError, match="batch_size must be"):
        task.batch(np.random.default_rng(0), 0)
