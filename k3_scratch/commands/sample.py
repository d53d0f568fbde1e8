"""`k3 sample`: let a trained model continue a text."""

import sys

from k3_scratch.generate import generate
from k3_scratch.pretrained import pretrained
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode
from k3_scratch.training.run_folder import load_model


def add_to(subparsers):
    parser = subparsers.add_parser("sample", help="continue a prompt with a trained model")
    parser.add_argument("run_folder", metavar="RUN", nargs="?", help="a finished run; without it the pretrained mini")
    parser.add_argument("--prompt", action="append", help="text to continue, may be repeated (default: standard input)")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="(default %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy (default)")
    parser.add_argument("--top-k", type=int, help="draw among the k most likely tokens")
    parser.add_argument("--top-p", type=float, help="draw among the likeliest tokens that reach this probability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-stop", action="store_true", help="do not stop at the end of a line")
    parser.set_defaults(run=run)


def run(arguments):
    model = load_model(arguments.run_folder) if arguments.run_folder else pretrained("mini")
    prompts = arguments.prompt or [sys.stdin.read().rstrip("\n")]
    written = generate(model, [encode(prompt) for prompt in prompts], arguments.max_new_tokens,
                       temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p,
                       stop_tokens=() if arguments.no_stop else (NEWLINE,), seed=arguments.seed)
    for prompt, tokens in zip(prompts, written, strict=True):
        print(prompt + decode(tokens).rstrip("\n"))
