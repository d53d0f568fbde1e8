"""A text file of your own as training data: windows of bytes, every next byte a target.

    file     |......... train .........|.. validation ..|.. test ..|      80, 10 and 10 % of the bytes, in order
    window          |abcdefgh|                                            never across a border

Bytes need not be UTF-8.
"""

from pathlib import Path

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.splits import SPLITS, need_split
from k3_scratch.tasks.vocabulary import VOCAB_SIZE


class TextFile:
    """Random windows of a file.

    path      the file
    length    tokens in a row, T
    Raises ValueError when the file cannot be read or a split of it is shorter than a window of T + 1 bytes.
    """

    vocab_size = VOCAB_SIZE

    def __init__(self, path, length=80):
        need_whole("length", length, 1)
        self.path, self.length = Path(path), length
        try:
            data = np.frombuffer(self.path.read_bytes(), np.uint8)
        except OSError as error:
            raise ValueError(f"path must be a readable file, but {str(path)!r} came ({error})") from error
        borders = [0, len(data) * 8 // 10, len(data) * 9 // 10, len(data)]
        self.ranges = dict(zip(SPLITS, zip(borders, borders[1:], strict=False), strict=True))
        shortest = min(end - start for start, end in self.ranges.values())
        if shortest <= length:
            raise ValueError(f"path must be a file of at least {10 * (length + 1)} bytes (a tenth of it is a split, "
                             f"and a window is {length + 1}), but {str(path)!r} has {len(data)}")
        self._data = data

    def batch(self, rng, batch_size, split="train", family=None):
        """`batch_size` windows that start anywhere inside the bytes of `split`; `family` is None, a file has none."""
        need_whole("batch_size", batch_size, 1)
        need_split(split)
        need(family is None, "family", "None for a text file", family)
        start, end = self.ranges[split]
        starts = rng.integers(start, end - self.length, size=batch_size)                   # [B]
        windows = self._data[starts[:, None] + np.arange(self.length + 1)]                 # [B, T+1]
        return Batch.from_windows(windows, np.ones(windows.shape, dtype=bool))
