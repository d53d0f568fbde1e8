"""`k3 demo`: the same prompts continued by our code and by llama.cpp, token for token."""

import tempfile
import time
from pathlib import Path

import numpy as np

from k3_scratch.export.gguf import to_gguf
from k3_scratch.export.llama_cpp import LlamaCpp, library
from k3_scratch.generate import generate
from k3_scratch.pretrained import pretrained
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.vocabulary import VOCAB_SIZE, decode, encode
from k3_scratch.training.run_folder import RunError, RunFolder, load_model

WIDTH = 40                                       # tokens in a line of the comparison


def add_to(subparsers):
    parser = subparsers.add_parser("demo", help="continue prompts here and in llama.cpp, token for token")
    parser.add_argument("run_folder", metavar="RUN", nargs="?", help="a finished run (default: the last one in runs/)")
    parser.add_argument("--pretrained", action="store_true", help="the miniature that comes with the package")
    parser.add_argument("--out", metavar="FILE", type=Path, help="keep the GGUF file there")
    parser.add_argument("--force", action="store_true", help="replace FILE")
    parser.add_argument("--prompts", type=int, default=6, help="how many (default %(default)s, one of each family)")
    parser.add_argument("--max-new-tokens", type=int, default=40, help="after each (default %(default)s)")
    parser.set_defaults(run=run)


def run(arguments):
    for flag, value in (("--prompts", arguments.prompts), ("--max-new-tokens", arguments.max_new_tokens)):
        if value < 1:
            raise RunError(f"{flag} must be at least 1, but {value} came")
    library()                                                            # missing packages are told before any work
    folder = None if arguments.pretrained else Path(arguments.run_folder or last_run())
    model = pretrained("mini") if folder is None else load_model(folder)
    if model.config.vocab_size != VOCAB_SIZE:
        raise RunError(f"{folder}: the demo needs a model of text, {VOCAB_SIZE} tokens, not {model.config.vocab_size}")
    with tempfile.TemporaryDirectory() as temporary:
        path = arguments.out or Path(temporary) / "model.gguf"
        remarks = to_gguf(model, path, force=arguments.force)
        print(f"{folder or 'the pretrained miniature'} as GGUF: {path.stat().st_size:,} bytes"
              + (f", {path}" if arguments.out else ""))
        for remark in remarks:
            print(f"note: {remark}")
        return compare(model, path, corpus_prompts(arguments.prompts), arguments.max_new_tokens)


def last_run(runs="runs"):
    """The folder in `runs` whose run was finished last. Raises RunError when there is none."""
    finished = [path for path in Path(runs).glob("*") if RunFolder(path).finished]
    if not finished:
        raise RunError(f"no finished run in {runs}/: train one (make train), or take --pretrained")
    return max(finished, key=lambda path: RunFolder(path).summary.stat().st_mtime)


def corpus_prompts(count):
    """Held-out questions, the families in turn."""
    rng, families = np.random.default_rng(7), list(FAMILIES.values())
    return [families[i % len(families)].example(rng, "test").turns[0][0] for i in range(count)]


def compare(model, path, prompts, count):
    """Print both continuations of each prompt and the speeds; returns the exit status, 0 when all tokens are equal."""
    equal, seconds = 0, np.zeros(2)
    longest = max(len(encode(prompt)) for prompt in prompts)
    with LlamaCpp(path, context=longest + count) as llama:
        generate(model, encode(prompts[0]), 2), llama.greedy(encode(prompts[0]), 2)      # the first call is slower
        for prompt in prompts:
            start = time.perf_counter()
            ours = generate(model, encode(prompt), count)
            middle = time.perf_counter()
            theirs = llama.greedy(llama.tokenize(prompt), count)
            seconds += middle - start, time.perf_counter() - middle
            equal += sum(a == b for a, b in zip(ours, theirs, strict=True))
            print("\n" + aligned(prompt, ours, theirs))
    total = count * len(prompts)
    ours, theirs = total / seconds
    print(f"\nours {ours:,.0f} tokens/s, llama.cpp {theirs:,.0f} tokens/s (float32, one prompt at a time)")
    print(f"{equal} of {total} tokens equal")
    return 0 if equal == total else 1


def aligned(prompt, ours, theirs):
    """Three rows: our tokens, llama.cpp's below them, and under each pair "=" or "!" where they differ.

    >>> print(aligned("2+2=", [52, 10], [52, 33]))
    2+2=
      ours       4⏎
      llama.cpp  4!
                 =!
    """
    rows = [("ours", "".join(map(shown, ours))), ("llama.cpp", "".join(map(shown, theirs))),
            ("", "".join("=" if a == b else "!" for a, b in zip(ours, theirs, strict=True)))]
    lines = [prompt]
    for start in range(0, len(ours), WIDTH):
        lines += [f"  {name:<9}  {row[start:start + WIDTH]}" for name, row in rows]
    return "\n".join(lines)


def shown(token):
    """One character for one token: a new line as ⏎, a space as ␣, what is not visible ASCII as ·."""
    text = decode([token])
    return {"\n": "⏎", " ": "␣"}.get(text, text if len(text) == 1 and text.isascii() and text.isprintable() else "·")
