"""Pictures and questions in one sequence: several pictures, each followed by questions about it, answered as text.

A picture stands as 9 marker tokens ("@" below), one for each 4 x 4 pixels; then come questions, and a newline.

    tokens    @@@@@@@@@red? box pluses? 2⏎@@@@@@@@@left of tee? plus lime? tee⏎
    marks     ..............^^^.........^$......................^^^^.......^^^$

A question is about the last picture before it. In the mixture, which is trained on, every second picture has three
different shapes, and relations are asked beside two other things only: beside one other thing, or two of one shape,
the answer is known without looking where they are. A family by itself, which is scored, has no such choice.

The pictures' arrangements decide the split, see splits.py: no arrangement of one split ever occurs in another,
whatever the noise.
"""

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.dice import dice
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.glyphs import SIDE, draw
from k3_scratch.tasks.scenes import KINDS, content, draw_scene, questions
from k3_scratch.tasks.splits import draw_in_split, need_split
from k3_scratch.tasks.vocabulary import IMAGE, PAD, VOCAB_SIZE, encode

FAMILIES = KINDS
SHARES = {"shape": 4, "colour": 4, "count": 3, "relation": 9}    # of 20 questions, where possible
MARKERS = 9                                       # tokens of a picture: 12 x 12 pixels, 4 x 4 a token
ROOM = len("right of plus? plus right of plus? plus\n")          # least text after a picture
_TRIES = 32                                       # questions that are drawn for a picture at most


class Pictures:
    """Windows of `pictures` pictures with questions.

    length     tokens in a row, T
    pictures   pictures in a row, at least 2
    """

    vocab_size, families = VOCAB_SIZE, FAMILIES

    def __init__(self, length=109, pictures=2):
        need_whole("pictures", pictures, 2)
        need_whole("length", length, pictures * (MARKERS + ROOM) - 1)
        self.length, self.pictures = length, pictures
        self.room = (length + 1) // pictures - MARKERS                   # characters after a picture

    def batch(self, rng, batch_size, split="train", family=None):
        """`batch_size` rows of one split: a Batch with `images` uint8 [B, P, 12, 12, 3].

        rng       NumPy Generator; the same state gives the same batch
        family    one of FAMILIES: all that is scored asks this; None: the mixture, all answers scored
        Learnt are the answers and the newlines.  Raises ValueError for unknown names.
        """
        need_whole("batch_size", batch_size, 1)
        need_split(split)
        need(family is None or family in FAMILIES, "family", "None or one of " + ", ".join(FAMILIES), family)
        pages = [self.page(rng, split, family) for _ in range(batch_size)]
        size = self.length + 1
        windows, marks = np.full((batch_size, size), PAD), np.zeros((batch_size, size), dtype=np.uint8)
        documents = np.full((batch_size, size), self.pictures)           # the PAD tail has a number of its own
        for row, page in enumerate(pages):
            at = 0
            for number, (_, example, asked) in enumerate(page):
                stop = at + MARKERS + len(example.text)
                windows[row, at:stop] = [IMAGE] * MARKERS + encode(example.text)
                marks[row, at + MARKERS:stop] = np.frombuffer(_marks(example, asked, family).encode("ascii"), np.uint8)
                documents[row, at:stop] = number
                at = stop
        images = draw([scene for page in pages for scene, *_ in page], rng)
        scored, learnt = marks == ord("^"), (marks != 0) & (marks != ord("."))
        number = 0 if family is None else FAMILIES.index(family)
        return Batch.from_windows(windows, learnt, scored, [number] * batch_size, documents,
                                  images.reshape(batch_size, self.pictures, SIDE, SIDE, 3))

    def page(self, rng, split, family=None):
        """One row before it is drawn: for each picture (scene, Example of its questions, the family of each turn)."""
        mixed = family is None
        roll = dice(rng, (3 * _TRIES + mixed) * self.pictures)
        unlike = [3 * roll(2) if mixed else 0 for _ in range(self.pictures)]     # 3: a relation has to be looked up
        scenes = [self._scene(rng, split, family, least) for least in unlike]
        return [(scene, *self._questions(roll, scene, family)) for scene in scenes]

    @staticmethod
    def _scene(rng, split, family, unlike):
        """A scene of the split with at least `unlike` different shapes about which `family` can be asked."""
        while True:
            scene = draw_in_split(split, lambda: draw_scene(rng), lambda drawn: [content(drawn)])
            if len({shape for shape, *_ in scene}) >= unlike and (family is None or questions(scene, family)):
                return scene

    def _questions(self, roll, scene, family):
        """As many questions about a scene as there is room for, at least one; the family of each.

        Nothing is asked whose answer stands in the text already: no "box? red" after "red? box".
        """
        turns, asked, told, left = [], [], set(), self.room - 1          # 1: the newline
        wheel = [name for name in FAMILIES for _ in range(SHARES[name])]
        there = {name: [(question, answer, _pair(name, question, answer))
                        for question, answer in questions(scene, name)]
                 for name in ([family] if family else FAMILIES)}
        if family is None and len(scene) == 2:
            there["relation"] = []                                       # one other thing is there: no need to look
        for _ in range(_TRIES):
            name = family or wheel[roll(len(wheel))]
            found = [(question, answer, tells) for question, answer, tells in there[name] if tells not in told]
            if not found:
                continue
            answers = sorted({answer for _, answer, _ in found})         # first the answer, so that none is rare
            answer = answers[roll(len(answers))]
            fitting = [(question, tells) for question, given, tells in found if given == answer]
            question, tells = fitting[roll(len(fitting))]
            turn = (f"{' ' if turns else ''}{question} ", answer)
            if len("".join(turn)) > left:
                continue                                                 # a shorter one may still fit
            turns.append(turn)
            asked.append(name)
            told.add(tells)
            left -= len("".join(turn))
        if not turns:                                                    # nothing was found: what can always be asked
            turns, asked = [("things? ", str(len(scene)))], ["count"]
        return Example(tuple(turns)), tuple(asked)


def _pair(name, question, answer):
    """What a turn tells, whichever way round; of numbers each comes once a picture, or nearly all would be 1."""
    return frozenset((name if name == "count" else question.rstrip("?").split()[-1], answer))


def prompt(*texts):
    """Token numbers of pictures and questions: MARKERS markers in place of each "@".

    >>> prompt("@red?")[7:], len(prompt("@red? box", "@"))
    ([259, 259, 114, 101, 100, 63], 26)
    """
    return [token for char in "".join(texts) for token in ([IMAGE] * MARKERS if char == "@" else encode(char))]


def _marks(example, asked, family):
    """The example's marks, with "/" in place of "^" under answers of other families: learnt, not scored."""
    if family is None:
        return example.marks
    return "".join("." * len(text) + ("^" if name == family else "/") * len(answer)
                   for (text, answer), name in zip(example.turns, asked, strict=True)) + "$"
