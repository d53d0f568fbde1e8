"""Which rows the picture of the architecture needs: every layer of a small model, repeats of a large one.

A layer is the pair (attention, feed-forward), such as ("KDA", "MoE"). `plan` cuts the layers into AttnRes blocks,
writes each block with as few rows as possible, and joins blocks that look the same.
"""

from dataclasses import dataclass

DRAW_EVERY_LAYER = 8        # up to so many layers each one gets its own row
LONGEST_PATTERN = 8         # layers in a pattern that may repeat


@dataclass(frozen=True)
class Row:
    """`count` equal layers in a row, drawn once; `first` is the number of the first of them."""

    kind: tuple[str, str]
    count: int
    first: int


@dataclass(frozen=True)
class Segment:
    """Rows that follow each other, the whole run of them `times` times."""

    rows: tuple[Row, ...]
    times: int

    @property
    def layers(self):
        """Layers of the model that it stands for."""
        return self.times * sum(row.count for row in self.rows)


@dataclass(frozen=True)
class Block:
    """Segments of one AttnRes block; blocks number `index` ... `index + times - 1` all look like this."""

    segments: tuple[Segment, ...]
    index: int
    times: int

    @property
    def rows(self):
        """Rows that are drawn, from bottom to top."""
        return [row for segment in self.segments for row in segment.rows]

    @property
    def layers(self):
        """Layers of one such block."""
        return sum(segment.layers for segment in self.segments)


def kinds_of(config):
    """One (attention, feed-forward) pair for each layer."""
    return [("MLA" if config.is_mla(i) else "KDA", "dense" if config.is_dense(i) else "MoE")
            for i in range(config.num_layers)]


def plan(config):
    """The blocks from bottom to top. Without depth attention the whole model is one block."""
    kinds = kinds_of(config)
    size = config.attn_res_block_size or len(kinds)
    blocks = []
    for start in range(0, len(kinds), size):
        part = kinds[start:start + size]
        if len(kinds) <= DRAW_EVERY_LAYER:
            segments = tuple(Segment((Row(kind, 1, start + i),), 1) for i, kind in enumerate(part))
        else:
            segments = compress(part, start)
        last = blocks[-1] if blocks else None
        if last and len(kinds) > DRAW_EVERY_LAYER and _look(last.segments) == _look(segments):
            blocks[-1] = Block(last.segments, last.index, last.times + 1)
        else:
            blocks.append(Block(segments, start // size, 1))
    return blocks


def compress(kinds, start=0):
    """Segments that spell `kinds` with the fewest rows, then the fewest segments (found by dynamic programming)."""
    best = [(0, 0, 0, ())]                   # (rows, segments, odd ends, what they are) for the first n layers
    for end in range(1, len(kinds) + 1):
        options = []
        for begin in range(end):
            for length in range(1, min(end - begin, LONGEST_PATTERN) + 1):
                times, rest = divmod(end - begin, length)
                pattern = kinds[begin:begin + length]
                if rest or pattern * times != kinds[begin:end] or (length == 1 and times > 1):
                    continue
                segment = Segment(_runs(pattern, start + begin), times)
                if times > 1 and len(segment.rows) > 2:     # "3 KDA, 1 MLA" reads well, "2 KDA, 1 MLA, 1 KDA" does not
                    continue
                options.append(_extend(best[begin], segment))
            if len(set(kinds[begin:end])) == 1:
                options.append(_extend(best[begin], Segment(_runs(kinds[begin:end], start + begin), 1)))
        best.append(min(options, key=lambda option: option[:3]))
    return best[-1][3]


def _extend(best, segment):
    """The cheapest way so far, one segment longer. A repeat that does not end with its MLA layer counts as odd."""
    rows, count, odd, before = best
    attention = [row.kind[0] for row in segment.rows]
    odd += segment.times > 1 and "MLA" in attention and attention[-1] != "MLA"
    return rows + len(segment.rows), count + 1, odd, (*before, segment)


def _runs(kinds, start):
    """Equal neighbours joined into rows."""
    rows = []
    for i, kind in enumerate(kinds):
        if rows and rows[-1].kind == kind:
            rows[-1] = Row(kind, rows[-1].count + 1, rows[-1].first)
        else:
            rows.append(Row(kind, 1, start + i))
    return tuple(rows)


def _look(segments):
    """What a block looks like, without the numbers of its layers."""
    return [(segment.times, [(row.kind, row.count) for row in segment.rows]) for segment in segments]
