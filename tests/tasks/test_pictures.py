"""Pictures and questions: solved from the pixels alone, disjoint splits, answers that the scene gives, honest rows."""

import re
from collections import Counter

import numpy as np
import pytest

from k3_scratch.tasks import pictures as pictures_module
from k3_scratch.tasks.batch import IGNORED
from k3_scratch.tasks.glyphs import COLOURS, GLYPH, SHAPES, SLOT, draw
from k3_scratch.tasks.pictures import FAMILIES, MARKERS, ROOM, Pictures, prompt
from k3_scratch.tasks.scenes import DIRECTIONS, KINDS, content, draw_scene, questions
from k3_scratch.tasks.splits import SPLITS, split_of
from k3_scratch.tasks.vocabulary import IMAGE, NEWLINE, PAD, decode


def read(image):
    """The scene in a picture, by comparing every place with every shape in every colour: no look at how it was made."""
    found = []
    for row in range(3):
        for column in range(3):
            best, thing = np.inf, None
            cut = image[SLOT * row:SLOT * row + GLYPH, SLOT * column:SLOT * column + GLYPH] - 128.0
            for shape, pixels in SHAPES.items():
                for colour, rgb in COLOURS.items():
                    light = np.clip((cut[pixels] @ (rgb - 128)).mean() / ((rgb - 128) @ (rgb - 128)), 0.67, 1)
                    wrong = np.abs(cut[pixels] - light * (rgb - 128)).sum() + np.abs(cut[~pixels]).sum()
                    if wrong < best:
                        best, thing = wrong, (shape, colour, row, column)
            if best < 450:                                               # noise alone: about 27 x 10
                found.append(thing)
    return tuple(found)


ASKED = re.compile(r"((?:left of |right of |above |below )?[a-z]+\?) ([a-z0-9]+)")


def asked(batch):
    """(row, number of the picture, question, answer, scored) of every answer in a batch."""
    for row, tokens in enumerate(batch.tokens):
        last = batch.targets[row, -1] if batch.targets[row, -1] != IGNORED else PAD
        text = "".join("@" if token == IMAGE else "_" if token == PAD else chr(token) for token in [*tokens, last])
        rest = ASKED.sub("", text).replace("@", "").replace("_", "")
        assert set(rest) <= {" ", "\n"}                                  # nothing but questions and answers
        for found in ASKED.finditer(text):
            answer = slice(found.start(2) - 1, found.end(2) - 1)         # as targets
            assert decode(batch.targets[row, answer]) == found[2]        # learnt
            yield row, text[:found.start()].count("@") // MARKERS - 1, found[1], found[2], batch.scored[row, answer]
        assert (batch.targets[row] != IGNORED).sum() == text.count("\n") + sum(len(x[2]) for x in ASKED.finditer(text))


def truth(scene, question):
    """The answer, worked out from the words of the question."""
    words = question.rstrip("?").split()
    [word] = words[-1:]
    if word not in SHAPES and word not in COLOURS:
        one = next(name for name in ("thing", *SHAPES, *COLOURS) if word in (name + "s", name + "es"))
        return str(sum(one in ("thing", shape, colour) for shape, colour, *_ in scene))
    if len(words) == 1:
        [thing] = [thing for thing in scene if words[0] in thing[:2]]
        return thing[0] if words[0] in COLOURS else thing[1]
    [here] = [thing for thing in scene if thing[0] == words[-1]]
    beyond = {"left": lambda t: t[3] < here[3], "right": lambda t: t[3] > here[3],
              "above": lambda t: t[2] < here[2], "below": lambda t: t[2] > here[2]}[words[0]]
    [thing] = [thing for thing in scene if beyond(thing)]
    return thing[0]


@pytest.mark.parametrize("family", [None, *FAMILIES])
@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_follows_from_the_pixels(family, split):
    batch, number = Pictures().batch(np.random.default_rng([5, 1]), 3, split, family), 0
    for row, picture, question, answer, scored in asked(batch):
        scene = read(batch.images[row, picture])
        assert split_of(content(scene)) == split
        assert truth(scene, question) == answer and scored.all()
        assert family is None or (question, answer) in questions(scene, family)
        number += 1
    assert number >= 5


def test_rows_are_pictures_and_text():
    data = Pictures()
    batch = data.batch(np.random.default_rng(3), 9)
    assert batch.images.shape == (9, 2, 12, 12, 3) and batch.images.dtype == np.uint8
    assert batch.tokens.shape == (9, data.length)
    assert ((batch.tokens == IMAGE).sum(1) == 2 * MARKERS).all()
    for row in range(9):
        places = np.flatnonzero(batch.tokens[row] == IMAGE)
        assert places[:MARKERS].tolist() == list(range(MARKERS))         # a picture stands whole
        assert (np.diff(places[MARKERS:]) == 1).all() and batch.tokens[row, places[MARKERS] - 1] == NEWLINE
        full = batch.tokens[row] != PAD
        assert full[:full.sum()].all()
        assert [batch.documents[row, places[0]], batch.documents[row, places[-1]]] == [0, 1]
    assert not batch.scored[batch.targets == NEWLINE].any()
    assert (batch.targets == NEWLINE).sum() >= 9                         # learnt, so that a model stops
    part = batch.rows(slice(1, None, 3))
    assert (part.images == batch.images[1::3]).all() and len(part.tokens) == 3


def test_the_same_seed_draws_the_same():
    one, again, other = (Pictures().batch(np.random.default_rng(seed), 4) for seed in ([7, 3], [7, 3], [7, 4]))
    assert (one.images == again.images).all() and (one.tokens == again.tokens).all()
    assert (one.images != other.images).any() and (one.tokens != other.tokens).any()


def test_no_arrangement_is_in_two_splits():
    """By construction; here also seen: the scenes of each split belong to it, and none is drawn in two."""
    drawn = {split: {content(scene) for seed in range(150) for scene, *_ in
                     Pictures().page(np.random.default_rng(seed), split)} for split in SPLITS}
    for split in SPLITS:
        assert {split_of(text) for text in drawn[split]} == {split} and len(drawn[split]) > 250
    assert not drawn["train"] & drawn["test"] and not drawn["train"] & drawn["validation"]


def test_all_things_and_words_come_up():
    scenes = [draw_scene(np.random.default_rng(seed)) for seed in range(400)]
    assert {thing[0] for scene in scenes for thing in scene} == set(SHAPES)
    assert {thing[1] for scene in scenes for thing in scene} == set(COLOURS)
    assert {thing[2:] for scene in scenes for thing in scene} == {(y, x) for y in range(3) for x in range(3)}
    assert all(len({thing[2:] for thing in scene}) == len(scene) for scene in scenes)
    words = {question.rsplit(" ", 1)[0] for scene in scenes for question, _ in questions(scene, "relation")}
    assert words == set(DIRECTIONS)
    for kind in KINDS:
        assert sum(bool(questions(scene, kind)) for scene in scenes) > 200


def test_questions_with_two_answers_are_not_asked():
    scene = (("plus", "red", 0, 0), ("plus", "blue", 1, 1), ("box", "red", 2, 2))
    assert questions(scene, "shape") == [("blue?", "plus")]
    assert questions(scene, "colour") == [("box?", "red")]
    assert questions(scene, "relation") == []                            # two pluses, and two things beside the box
    assert questions(scene[1:], "relation") == [("right of plus?", "box"), ("below plus?", "box"),
                                                ("left of box?", "plus"), ("above box?", "plus")]
    assert dict(questions(scene, "count")) == {"things?": "3", "reds?": "2", "blues?": "1", "pluses?": "2",
                                               "boxes?": "1"}


def test_the_mixture_asks_relations_that_have_to_be_looked_up():
    """Three different shapes in half of the pictures and more, and beside a single other thing no relation."""
    pages = [page for seed in range(200) for page in Pictures().page(np.random.default_rng(seed), "train")]
    unlike = [len({shape for shape, *_ in scene}) == 3 for scene, *_ in pages]
    assert 0.5 < np.mean(unlike) < 0.7                                   # half, and a fifth of the other half
    numbers = Counter(len(scene) for scene, _, asked in pages for name in asked if name == "relation")
    assert set(numbers) == {3} and numbers[3] > 300
    alone = [page for seed in range(60) for page in Pictures().page(np.random.default_rng(seed), "test", "relation")]
    assert Counter(len(scene) for scene, *_ in alone)[2] > 30            # what is scored is asked beside one thing, too


def test_no_answer_stands_in_the_text_before():
    """No "box? red" after "red? box", and no question about a picture twice."""
    for seed in range(60):
        for family in (None, *FAMILIES):
            for _, example, _ in Pictures().page(np.random.default_rng(seed), "train", family):
                pairs = [frozenset((question.strip().rstrip("?").split()[-1], answer))
                         for question, answer in example.turns]
                assert len(set(pairs)) == len(pairs)


def test_no_answer_is_rare():
    """Guessing the commonest answer of a family pays little: at most .5 for numbers, .3 for words."""
    for family, most in (("shape", 0.3), ("colour", 0.3), ("count", 0.5), ("relation", 0.3)):
        given = [answer for seed in range(150) for _, example, names in
                 Pictures().page(np.random.default_rng(seed), "train", family)
                 for (_, answer), name in zip(example.turns, names, strict=True) if name == family]
        counts = [given.count(answer) for answer in set(given)]
        assert len(counts) >= (3 if family == "count" else 4) and max(counts) / len(given) < most, family


def test_shapes_are_told_apart():
    drawn = [SHAPES[name].tobytes() for name in SHAPES]
    assert len(set(drawn)) == len(drawn) == 4
    assert all(pixels.shape == (GLYPH, GLYPH) for pixels in SHAPES.values())
    assert SHAPES["ell"].sum(1).tolist() == [1, 1, 3] and SHAPES["box"].sum() == 9


def test_nothing_is_drawn_where_nothing_stands():
    empty = draw([(), (("box", "red", 1, 1),)], np.random.default_rng(0)).astype(float)
    assert abs(empty[0].mean() - 128) < 2 and 60 < empty[0].min() < empty[0].max() < 196
    assert empty[1, 4:7, 4:7, 0].min() > 170 and empty[1, 8:].max() < 196


def test_prompt_and_docstring_of_the_module():
    assert prompt("@a", "b") == [IMAGE] * MARKERS + [97, 98]
    tokens, marks = (next(line.split(name)[1].strip() for line in pictures_module.__doc__.split("\n") if name in line)
                     for name in ("    tokens ", "    marks "))
    assert len(marks) == len(tokens) and tokens.count("@") == 2 * MARKERS
    assert "".join(char for char, mark in zip(tokens, marks, strict=True) if mark == "^") == "box2plustee"
    assert [mark == "$" for mark in marks] == [char == "⏎" for char in tokens]


@pytest.mark.parametrize(("settings", "message"), [
    ({"pictures": 1}, "pictures must be a whole number, at least 2, but 1 came"),
    ({"length": 2 * (MARKERS + ROOM) - 2}, f"length must be a whole number, at least {2 * (MARKERS + ROOM) - 1}, but"),
    ({"length": 80.0}, "length must be a whole number"),
])
def test_wrong_sizes(settings, message):
    with pytest.raises(ValueError, match=message):
        Pictures(**settings)


def test_wrong_split_and_family():
    for wrong, message in (({"split": "all"}, "split must be one of train"), ({"family": "age"}, "family must be None"),
                           ({"batch_size": 0}, "batch_size must be a whole number, at least 1")):
        with pytest.raises(ValueError, match=message):
            Pictures().batch(**{"rng": np.random.default_rng(0), "batch_size": 2, **wrong})


def test_three_pictures_fit_in_the_shortest_row():
    data = Pictures(length=3 * (MARKERS + ROOM) - 1, pictures=3)
    for seed in range(40):
        batch = data.batch(np.random.default_rng(seed), 2, "test")
        assert ((batch.tokens == IMAGE).sum(1) == 3 * MARKERS).all() and batch.scored.any(1).all()
        for family in FAMILIES:
            assert data.batch(np.random.default_rng(seed), 2, "test", family).scored.any(1).all()
