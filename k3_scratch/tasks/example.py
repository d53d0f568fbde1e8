"""One example: turns of a prompt and its answer, ended by a newline.

The mark under a character says what is done with it: "." is given, "^" is an answer (learnt and scored),
"$" is the newline at the end (learnt, so that a model stops, but not scored).

    text     a4 k7?k7a4
    marks    .......^.^$
"""

from dataclasses import dataclass

from k3_scratch.tasks.arguments import need


@dataclass(frozen=True)
class Example:
    """Turns ((prompt, answer), ...), all printable ASCII.

    >>> example = Example((("a4 k7?k", "7"), ("a", "4")))
    >>> print(example.text + example.marks)
    a4 k7?k7a4
    .......^.^$
    """

    turns: tuple[tuple[str, str], ...]

    def __post_init__(self):
        need(len(self.turns) > 0, "turns", "at least one (prompt, answer)", self.turns)
        for prompt, answer in self.turns:
            need((prompt + answer).isascii() and (prompt + answer).isprintable(), "turns", "printable ASCII",
                 prompt + answer)
            need(prompt and answer, "turns", "prompts and answers that are not empty", (prompt, answer))

    @property
    def text(self):
        """Everything in order, and the newline."""
        return "".join(prompt + answer for prompt, answer in self.turns) + "\n"

    @property
    def marks(self):
        """One mark for each character of `text`."""
        return "".join("." * len(prompt) + "^" * len(answer) for prompt, answer in self.turns) + "$"
