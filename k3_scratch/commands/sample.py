"""`k3 sample`: let a trained model continue a text, or answer questions about a picture."""

import sys

import numpy as np
import torch

from k3_scratch.generate import generate
from k3_scratch.pretrained import run_or_pretrained
from k3_scratch.tasks.glyphs import draw
from k3_scratch.tasks.pictures import Pictures, prompt
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode
from k3_scratch.training.run_folder import RunError


def add_to(subparsers):
    parser = subparsers.add_parser("sample", help="continue a prompt with a trained model")
    add_writing(parser)
    parser.add_argument("--prompt", action="append", help="text to continue, may be repeated (default: standard input)")
    parser.add_argument("--no-stop", action="store_true", help="do not stop at the end of a line")
    parser.add_argument("--picture", metavar="N", type=int,
                        help="for a run of --preset vision: ask about held-out picture number N")
    parser.set_defaults(run=run)


def add_writing(parser):
    """The arguments of every command that lets a model write: which model, how much, and how tokens are chosen."""
    parser.add_argument("run_folder", metavar="RUN", nargs="?",
                        help="a finished run, or a published model: mini (default) or vision")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="of an answer (default %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy (default)")
    parser.add_argument("--top-k", type=int, help="draw among the k most likely tokens")
    parser.add_argument("--top-p", type=float, help="draw among the likeliest tokens that reach this probability")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments):
    model = run_or_pretrained(arguments.run_folder)
    prompts = arguments.prompt or [sys.stdin.read().rstrip("\n")]
    tokens, pictures, stop = [encode(text) for text in prompts], {}, (NEWLINE,)
    if arguments.picture is not None or model.config.vision is not None:
        scene, image = _picture(model, arguments.picture)
        print("picture of " + in_words(scene))
        prompts = [text.rstrip() + " " for text in prompts]
        tokens, pictures = [prompt("@", text) for text in prompts], {"images": image.repeat(len(prompts), 1, 1, 1)}
        stop = (NEWLINE, ord(" "))                                       # an answer is a word
    written = generate(model, tokens, arguments.max_new_tokens, temperature=arguments.temperature,
                       top_k=arguments.top_k, top_p=arguments.top_p, stop_tokens=() if arguments.no_stop else stop,
                       seed=arguments.seed, **pictures)
    for text, answer in zip(prompts, written, strict=True):
        print(text + decode(answer).rstrip("\n"))


def _picture(model, number):
    """Held-out picture `number`: its scene, and uint8 [1, 12, 12, 3]."""
    if model.config.vision is None:
        raise RunError("--picture needs a run with a picture encoder (k3 train --preset vision), and this has none")
    if number is None or number < 0:
        raise RunError("this run answers about pictures; name one with --picture N, a whole number from 0 on"
                       + ("" if number is None else f", but {number} came"))
    scene, image = held_out_picture(number)
    return scene, torch.from_numpy(image).unsqueeze(0)


def held_out_picture(number):
    """The scene of held-out picture `number`, and the picture, uint8 [12, 12, 3]."""
    rng = np.random.default_rng(number)
    scene = Pictures().page(rng, "test")[0][0]
    return scene, draw([scene], rng)[0]


def in_words(scene):
    """What is in a scene, and where."""
    return ", ".join(f"a {colour} {shape} (row {row}, column {column})" for shape, colour, row, column in scene)
