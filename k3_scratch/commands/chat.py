"""`k3 chat`: a conversation with a trained model. Each turn sends all of it again; the store keeps that cheap."""

import numpy as np
import torch

from k3_scratch.commands.sample import add_writing, held_out_picture, in_words
from k3_scratch.pretrained import run_or_pretrained
from k3_scratch.serving.answering import stream
from k3_scratch.serving.policies import at_turns
from k3_scratch.serving.prefix_store import PrefixStore
from k3_scratch.tasks.pictures import MARKERS, prompt
from k3_scratch.tasks.vocabulary import IMAGE, NEWLINE, VOCAB_SIZE, decode, encode
from k3_scratch.training.run_folder import RunError

SPACE = ord(" ")
HELP = ("/back takes the last turn back, /new begins again, /stats shows what the store saved, /quit (or Ctrl-D) ends; "
        "/picture N, for a run of --preset vision, shows held-out picture number N")


def add_to(subparsers):
    parser = subparsers.add_parser("chat", help="talk with a trained model", epilog=HELP)
    add_writing(parser)
    parser.add_argument("--system", metavar="TEXT", help="a first line that every conversation begins with")
    parser.add_argument("--block", type=int, default=8, help="tokens in a block of the store (default %(default)s)")
    parser.add_argument("--memory", type=float, default=64, metavar="MIB", help="for the store (default %(default)s)")
    parser.set_defaults(run=run)


def run(arguments):
    model = run_or_pretrained(arguments.run_folder)
    if model.config.vocab_size < VOCAB_SIZE:
        raise RunError(f"{arguments.run_folder}: chat needs a model of text, {VOCAB_SIZE} tokens, "
                       f"not {model.config.vocab_size}")
    if not arguments.memory >= 0:
        raise RunError(f"--memory must be at least 0, but {arguments.memory} came")
    store = PrefixStore(model, block=arguments.block, budget=int(arguments.memory * 2 ** 20))
    chat = Chat(model, store, arguments.system, max_new_tokens=arguments.max_new_tokens, seed=arguments.seed,
                temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p)
    print(HELP)
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if line.startswith("/"):
            if line == "/quit":
                return
            print(chat.command(line))
        elif line:
            for piece in chat.say(line):
                print(piece, end="", flush=True)
            print()


class Chat:
    """One conversation and its store.

    tokens    everything said so far: questions and answers, each answer with the newline that ends it; a model with a
              picture encoder has learnt answers of one word, which a space ends
    turns     where each question and each answer ended, in tokens
    images    uint8 [Y, X, 3] of each picture in the conversation
    shown     pictures that the next question begins with
    """

    def __init__(self, model, store, system=None, **settings):
        self.model, self.store, self.settings = model, store, settings
        self.begin = encode(system + "\n") if system else []
        self.ends = (NEWLINE,) if model.config.vision is None else (SPACE, NEWLINE)
        self.new()

    def new(self):
        """Forget the conversation; the store remembers it."""
        self.tokens, self.turns = list(self.begin), [len(self.begin)] if self.begin else []
        self.images, self.shown = [], []

    def say(self, line):
        """Yield the answer to a line, piece by piece as it is written, without what ends it."""
        asked, images = [*self.tokens, *self.question(line)], [*self.images, *self.shown]
        pictures = {"images": torch.from_numpy(np.stack(images))} if images else {}
        written, told = [], ""
        for token in stream(self.model, asked, store=self.store, policy=at_turns, turns=self.turns,
                            stop_tokens=self.ends, **pictures, **self.settings):
            written.append(token)
            text = decode(written[:-1] if token in self.ends else written)
            if not text.endswith("\ufffd"):                              # perhaps half a character: wait for its rest
                yield text[len(told):]
                told = text
        yield decode(written[:-1] if written[-1] in self.ends else written)[len(told):]
        if written[-1] not in self.ends:                                 # cut off: the next question begins as always
            written.append(self.ends[0])
        self.turns += [len(asked), len(asked) + len(written)]
        self.tokens, self.images, self.shown = [*asked, *written], images, []

    def question(self, line):
        """The tokens of what was typed, after the markers of the pictures shown."""
        if self.model.config.vision is None:
            return encode(line)
        before = "\n" if self.shown and self.tokens and self.tokens[-1] != NEWLINE else ""       # as in its training
        return prompt(before + "@" * len(self.shown)) + encode(line.rstrip() + " ")

    def show(self, number):
        """Take held-out picture `number` into the next question; returns what is in it, in words."""
        if self.model.config.vision is None:
            return "(this model has no picture encoder: k3 train --preset vision makes one)"
        scene, image = held_out_picture(number)
        self.shown.append(image)
        return f"(a picture of {in_words(scene)})"

    def command(self, line):
        """Do what a line with a slash asks for and return what to say about it."""
        if line == "/new":
            self.new()
            return "(a new conversation)"
        if line.startswith("/picture ") and line[9:].isdecimal():
            return self.show(int(line[9:]))
        if line == "/back":
            if len(self.turns) < 2:
                return "(there is no turn to take back)"
            del self.turns[-2:]
            self.tokens = self.tokens[:self.turns[-1] if self.turns else 0]
            self.images, self.shown = self.images[:self.tokens.count(IMAGE) // MARKERS], []
            return f"(back at: {decode(self.tokens).splitlines()[-1]!r})" if self.tokens else "(back at the start)"
        if line == "/stats":
            seen = self.store.statistics
            return (f"({seen.requests} questions, {seen.tokens:,} tokens sent, {seen.saved:,} of them not computed "
                    f"again ({seen.saved_share:.0%}); {self.store.nbytes:,} bytes kept, "
                    f"{self.store.index.evicted} thrown out)")
        return f"({line} is not a command: {HELP})"
