"""`k3 chat`: turns follow each other, the store saves what was said, and the answers are those of `generate`."""

import numpy as np
import pytest
import torch

from k3_scratch.__main__ import main
from k3_scratch.commands.chat import Chat
from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.model import K3
from k3_scratch.pretrained import pretrained
from k3_scratch.serving.prefix_store import PrefixStore
from k3_scratch.tasks.pictures import MARKERS
from k3_scratch.tasks.vocabulary import IMAGE, NEWLINE, decode, encode


@pytest.fixture(scope="module")
def mini():
    return pretrained("mini")


def chat_with(monkeypatch, capsys, lines, *flags):
    """Type these lines; returns what was printed, a list of lines."""
    typed = iter(lines)

    def typing(prompt):
        assert prompt == "> "
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", typing)
    assert main(["chat", *flags]) == 0
    assert next(typed, None) is None
    return capsys.readouterr().out.splitlines()


def by_hand(model, questions, begin=""):
    """The same conversation without a store."""
    tokens, answers = encode(begin), []
    for line in questions:
        tokens += encode(line)
        answer = generate(model, tokens, 64, stop_tokens=(NEWLINE,))
        answers.append(decode(answer).removesuffix("\n"))
        tokens += answer if answer[-1] == NEWLINE else [*answer, NEWLINE]
    return answers


def test_the_pretrained_miniature_answers(monkeypatch, capsys, mini):
    questions = ["copy abcde>", "copy mapdy>", "copy zzq>"]
    out = chat_with(monkeypatch, capsys, questions)
    assert out[1:-1] == by_hand(mini, questions) == ["abcde", "mapdy", "zzq"]
    assert "/back" in out[0] and out[-1] == ""


def test_the_commands(monkeypatch, capsys, mini):
    asked = ["94+86=", "2+2=", "/back", "3+3=", "/new", "94+86=", "", "/fly", "/back", "/back", "/stats", "/quit"]
    out = chat_with(monkeypatch, capsys, asked)
    first = by_hand(mini, ["94+86=", "2+2="])
    assert out[1:3] == first
    assert out[3] == f"(back at: '94+86={first[0]}')"
    assert out[4] == by_hand(mini, ["94+86=", "3+3="])[1]
    assert out[5:7] == ["(a new conversation)", first[0]]                # an empty line asks nothing
    assert out[7].startswith("(/fly is not a command: /back takes")
    assert out[8:10] == ["(back at the start)", "(there is no turn to take back)"]
    assert out[10].startswith("(4 questions, ") and " 0 of them" not in out[10] and len(out) == 11


def test_every_conversation_begins_with_the_system_line(monkeypatch, capsys, mini):
    out = chat_with(monkeypatch, capsys, ["47+85=", "/back", "/new", "47+85=", "/stats"], "--system", "1+1=2",
                    "--block", "2", "--memory", "1")
    answer = by_hand(mini, ["47+85="], "1+1=2\n")[0]
    assert out[1:6] == [answer, "(back at: '1+1=2')", "(a new conversation)", answer, out[5]]
    sent = 2 * len("1+1=2\n47+85=")
    assert out[5].startswith(f"(2 questions, {sent} tokens sent, 6 of them not computed again (25%); ")


@pytest.mark.parametrize("memory", ["0", "0.03", "64"])
def test_the_store_changes_no_answer(memory, monkeypatch, capsys, mini):
    questions = ["w6 s6 k8 u2?k", "a4 b5?a", "flip abc>", "end ([", "copy hello>"]
    out = chat_with(monkeypatch, capsys, [*questions, "/stats"], "--memory", memory, "--block", "4")
    assert out[1:6] == by_hand(mini, questions)
    assert (" 0 of them not computed" in out[6]) == (memory == "0")


def babbler_model():
    """Weights so wide that it writes any bytes at all, half characters among them."""
    return K3(preset("nano").replace(initializer_range=0.4), seed=3).double().eval()


@pytest.fixture(scope="module")
def babbler():
    return babbler_model()


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 5}, {"temperature": 1.0, "seed": 6}])
def test_pieces_make_up_the_answer(babbler, settings):
    chat = Chat(babbler, PrefixStore(babbler, block=4), max_new_tokens=40, **settings)
    for line in ("grüße", "x"):
        want = generate(babbler, [*chat.tokens, *encode(line)], 40, stop_tokens=(NEWLINE,), **settings)
        before = len(chat.tokens)
        pieces = list(chat.say(line))
        assert "".join(pieces) == decode(want).removesuffix("\n") and len(pieces) >= 3
        assert chat.tokens[before + len(encode(line)):][:len(want)] == want and chat.tokens[-1] == NEWLINE
        assert chat.turns[-1] == len(chat.tokens)


def test_a_character_of_several_bytes_is_shown_whole(babbler, monkeypatch):
    written = iter([*encode("aé☃"), 0xE2, NEWLINE])
    monkeypatch.setattr("k3_scratch.serving.answering.choose", lambda *_: torch.tensor(next(written)))
    pieces = [piece for piece in Chat(babbler, None, max_new_tokens=20).say("x") if piece]
    assert pieces == ["a", "é", "☃", "\ufffd"]


def test_a_conversation_about_pictures():
    """One picture, several, one taken back: always the answers of `generate`, and pictures are not mixed up."""
    model = K3(preset("vision").replace(initializer_range=0.3), seed=4).double().eval()
    chat = Chat(model, PrefixStore(model, block=4), max_new_tokens=7)

    def ask(line, *numbers):
        for number in numbers:
            assert chat.command(f"/picture {number}").startswith("(a picture of a ")
        shown = [*chat.images, *chat.shown]
        tokens = [*chat.tokens, *chat.question(line)]
        want = generate(model, tokens, 7, stop_tokens=(32, NEWLINE), images=torch.from_numpy(np.stack(shown)))
        answer = "".join(chat.say(line))
        assert answer == decode(want[:-1] if want[-1] in (32, NEWLINE) else want)
        assert chat.tokens.count(IMAGE) == MARKERS * len(chat.images) == MARKERS * len(shown) and chat.shown == []
        return answer

    first = ask("red?", 3)
    ask("how many disc?")
    ask("left of tee?", 5)
    chat.command("/back"), chat.command("/back")
    assert len(chat.images) == 1
    ask("what?", 7, 8)
    chat.command("/new")
    assert ask("red?", 3) == first and chat.store.statistics.saved > 0
    assert chat.command("/picture x").startswith("(/picture x is not a command")
    assert Chat(babbler_model(), None).command("/picture 3").startswith("(this model has no picture encoder")


@pytest.mark.parametrize(("flags", "message"), [
    (["nowhere"], "nowhere: not a run folder"), (["--memory", "-1"], "--memory must be at least 0, but -1.0 came"),
    (["--memory", "nan"], "--memory must be"), (["--block", "0"], "PrefixStore: block must be at least 1 token"),
    (["--max-new-tokens", "0"], "max_new_tokens must be at least 1"), (["--top-p", "2"], "top_p must be")])
def test_bad_input_costs_one_line(flags, message, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda prompt: "x")
    assert main(["chat", *flags]) == 2
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1
