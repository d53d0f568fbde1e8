"""Quizzes: questions in `notebooks/teaching/quizzes/NN.toml`, checked, and written as two pages.

A question, for four choices or for a short answer:

    [[question]]
    ask = "How many bytes ...?"
    right = "27,648 bytes"                          # or, for a short answer, answer = "27,648"
    check = "24 * (512 + 64) * 2"                   # optional: its value must stand in the right answer
    why = "24 layers, 576 numbers, 2 bytes each."
    wrong = [["13,824 bytes", "Those are numbers: two bytes each.", "24 * 576"],    # text, why not, its own check
             ["24,576 bytes", "The shared slice is missing."], ["...", "..."]]

A check may use the presets `k3`, `linear`, `mini`, `nano`, `count(config)`, `cache(config, tokens)`, plain mathematics
(sqrt, log, exp, tanh, pi) and round, min, max, abs, sum, range, int. Its value is written with commas between thousands
(a text as it is) and must stand in the answer. Which letter is right follows from the question's number.
"""

import hashlib
import itertools
import math
import re
import tomllib
from dataclasses import dataclass

from k3_scratch.accounting import cache_bytes, count_parameters
from k3_scratch.config import preset
from k3_scratch.course.chapters import CHAPTERS, TITLES

LETTERS = "ABCD"
FIELDS = {"ask", "right", "answer", "check", "why", "wrong"}
NAMES = {"k3": preset("kimi_k3"), "linear": preset("kimi_linear_48b"), "mini": preset("mini"), "nano": preset("nano"),
         "count": count_parameters, "cache": cache_bytes,
         **{name: getattr(math, name) for name in ("sqrt", "log", "exp", "tanh", "pi", "comb")},
         **{function.__name__: function for function in (round, min, max, abs, sum, range, int, len)}}


class QuizError(ValueError):
    """A question breaks a rule above; the message names the file, the question and the rule."""


@dataclass(frozen=True)
class Question:
    """One question. `wrong`: (text, why not, check or ""); `choices`: are they shown, or is a short answer asked?"""

    chapter: str
    number: int
    ask: str
    right: str
    why: str
    check: str
    wrong: tuple
    choices: bool

    @property
    def id(self):
        return f"Q{int(self.chapter)}.{self.number}"


def read(folder):
    """All questions, chapter by chapter.                    folder of NN.toml -> [Question].  Raises QuizError."""
    found = []
    for file in sorted(folder.glob("[0-9][0-9].toml")):
        try:
            rows = tomllib.loads(file.read_text(encoding="utf-8")).get("question", [])
        except tomllib.TOMLDecodeError as error:
            raise QuizError(f"{file.name}: not readable TOML ({error})") from error
        found += [_question(file.stem, number, row) for number, row in enumerate(rows, start=1)]
    return found


def _question(chapter, number, row):
    where = f"quizzes/{chapter}.toml, question {number}"
    if not any(name.startswith(chapter) for name in TITLES):
        raise QuizError(f"{where}: there is no chapter {chapter}")
    if set(row) - FIELDS or not {"ask", "why"} <= set(row) or ("right" in row) == ("answer" in row):
        raise QuizError(f"{where}: wanted ask, why, right or answer, and perhaps wrong and check, but {list(row)} came")
    wrong = tuple((*each, "")[:3] for each in row.get("wrong", []))
    if "right" in row and len(wrong) != 3:
        raise QuizError(f"{where}: a right choice needs three wrong ones, but {len(wrong)} came")
    question = Question(chapter, number, row["ask"].strip(), str(row.get("right", row.get("answer"))).strip(),
                        row["why"].strip(), row.get("check", ""), wrong, "right" in row)
    for text, check in ((question.right, question.check), *((each[0], each[2]) for each in wrong)):
        if check and not agrees(text, check):
            raise QuizError(f"{where}: {check} is {shown(check)}, but the answer says {text!r}")
    return question


def shown(check):
    """The value of a check as it must stand in the answer.

    >>> shown("24 * (512 + 64) * 2")
    '27,648'
    >>> shown("round(k3.hidden_size / k3.moe_latent_size, 2)")
    '2'
    """
    try:
        value = eval(check, {"__builtins__": {}, **NAMES})  # the repository's own text, checked by its tests
    except Exception as error:
        raise QuizError(f"check {check!r} stopped with {type(error).__name__}: {error}") from error
    whole = isinstance(value, float) and value == int(value)
    return value if isinstance(value, str) else f"{int(value) if whole else value:,}"


def agrees(text, check):
    """Does the value of a check stand in the text, as a number of its own?"""
    return re.search(rf"(?<![\d.,]){re.escape(shown(check))}(?![\d]|[.,]\d)", text.replace("−", "-")) is not None


def letters(questions):
    """The letter of each right answer: every four questions with choices use each letter once.    -> {id: "A", ...}"""
    asked = [question for question in questions if question.choices]
    orders = list(itertools.permutations(LETTERS))
    found = {}
    for block in range(0, len(asked), 4):
        order = orders[hashlib.sha256(f"block {block}".encode()).digest()[0] % len(orders)]
        found |= {question.id: letter for question, letter in zip(asked[block:block + 4], order, strict=False)}
    return found


def choices(question, letter):
    """The four choices in order.                                       -> [(letter, text, why not or None), ...]"""
    rows = [(text, why) for text, why, _ in question.wrong]
    rows.insert(LETTERS.index(letter), (question.right, None))
    return [(sign, *row) for sign, row in zip(LETTERS, rows, strict=True)]


def questions_page(questions):
    """quizzes.md: the questions alone, to be printed or shown.                                           -> text"""
    computed = sum(bool(question.check) for question in questions)
    lines = ["# Quizzes", "", "Made by `k3 teaching` from [quizzes/](quizzes): change those, not this. "
             f"{len(questions)} questions, {computed} of them with a small calculation that the tests carry out too. "
             "Answers, with a reason for every choice: [quiz_answers.md](quiz_answers.md)."]
    right = letters(questions)
    for name, title, group in _by_chapter(questions):
        lines += ["", f"## [{name[:2]} · {title}](../{name}.ipynb)"]
        for question in group:
            lines += ["", f"**{question.id}** {question.ask}"]
            if question.choices:
                lines += ["", *(f"- **{sign}** {text}" for sign, text, _ in choices(question, right[question.id]))]
    return "\n".join(lines) + "\n"


def answers_page(questions):
    """quiz_answers.md: the key, and what each wrong choice has got wrong.                                -> text"""
    lines = ["# Quizzes: answers", "", "Made by `k3 teaching` from [quizzes/](quizzes): change those, not this. "
             "The questions: [quizzes.md](quizzes.md)."]
    right = letters(questions)
    for name, title, group in _by_chapter(questions):
        lines += ["", f"## {name[:2]} · {title}"]
        for question in group:
            letter = right.get(question.id)
            computed = f" (`{question.check}`)" if question.check else ""
            head = f"**{question.id}: {letter or 'short answer'}** *{question.right.rstrip('.')}*{computed}"
            lines += ["", f"{head}. {question.why}"]
            others = choices(question, letter) if letter else [("", text, why) for text, why, _ in question.wrong]
            rows = [f"- {f'**{sign}** ' if sign else ''}*{text.rstrip('.')}*. {why}"
                    for sign, text, why in others if why]
            lines += ["", *rows] if rows else []
    return "\n".join(lines) + "\n"


def _by_chapter(questions):
    for name, title in CHAPTERS:
        group = [question for question in questions if question.chapter == name[:2]]
        if group:
            yield name, title, group
