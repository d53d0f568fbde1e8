"""Independent solvers: each reads the text of one example line and says what every answer should be."""

import re


def recall(line):
    listed, _, rest = line.partition("?")
    memory = dict(re.findall(r"([a-z])(\d)", listed))
    assert len(memory) == len(listed.split()), "a key occurs twice"
    return [memory[key] for key in rest[::2]]


def copy(line):
    return [re.fullmatch(r"copy ([a-z]{3,20})>.*", line)[1]]


def reverse(line):
    return ["".join(reversed(re.fullmatch(r"flip ([a-z]{3,20})>.*", line)[1]))]


def brackets(line):
    shown = line.removeprefix("end ").split("=")[0]
    while (shorter := re.sub(r"\(\)|\[\]|\{\}|<>", "", shown)) != shown:     # strike out closed pairs
        shown = shorter
    assert shown
    assert set(shown) <= set("([{<"), "a closer is wrong"
    return [shown[::-1].translate(str.maketrans("([{<", ")]}>"))]


def addition(line):
    return [str(int(a) + int(b)) for a, b in re.findall(r"(\d+)\+(\d+)=", line)]


def stories(line):
    opening, *sentences = re.split(r"[.?] ?", line)
    owner = {}
    for clause in opening.replace(" has", "").split(", "):
        name, thing = clause.split()
        owner[thing] = name
    answers = []
    for sentence in sentences:
        words = sentence.split()
        if len(words) == 4:
            assert words[1] == "gives"
            assert owner[words[3]] == words[0]
            owner[words[3]] = words[2]
        elif len(words) == 3:
            assert words[1] == "takes"
            assert owner[words[2]] != words[0]
            owner[words[2]] = words[0]
        elif words[0].lower() in owner:                                      # a question
            answers.append(owner[words[0].lower()])
    return answers


SOLVERS = {"recall": recall, "copy": copy, "reverse": reverse, "brackets": brackets, "addition": addition,
           "stories": stories}


def answers_from_marks(example):
    """The answers as the marks show them."""
    return [example.text[found.start():found.end()] for found in re.finditer(r"\^+", example.marks)]
