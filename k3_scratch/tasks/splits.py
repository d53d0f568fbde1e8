"""Which split a piece of content belongs to: a pure function of the content, so that no two splits can share any.

There are no lists of held-out items. The hash of a content string says where it belongs, always and everywhere,
and whoever draws data throws away what belongs elsewhere:

    content    47+85   wjxkqz   4+8          3+8
    split      train   train    validation   test

About 80 % of all content is train, 10 % validation and 10 % test.
"""

from hashlib import blake2b

from k3_scratch.tasks.arguments import need

SPLITS = ("train", "validation", "test")
_TENTHS = ("train",) * 8 + ("validation", "test")


def split_of(content):
    """The name of the one split that `content` (a str) belongs to."""
    need(isinstance(content, str), "content", "a str", content)
    digest = blake2b(content.encode("utf-8"), digest_size=8).digest()
    return _TENTHS[int.from_bytes(digest, "little") % 10]


def need_split(split):
    """Raise ValueError unless `split` is the name of a split."""
    need(split in SPLITS, "split", "one of " + ", ".join(SPLITS), split)


def draw_in_split(split, draw, contents):
    """Call `draw()` until every string of `contents(drawn)` belongs to `split`; return what was drawn."""
    need_split(split)
    while True:
        drawn = draw()
        if all(split_of(content) == split for content in contents(drawn)):
            return drawn
