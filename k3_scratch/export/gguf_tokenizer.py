"""The byte-level tokenizer in GGUF's words: a byte is a token, so text in and text out are the same bytes as here."""

from k3_scratch.tasks.vocabulary import BOS, EOS, PAD, SPECIALS, VOCAB_SIZE

NORMAL, CONTROL = 1, 3                           # token types of GGUF


def tokenizer_keys(config):
    """{key: value} under "tokenizer.ggml."; a vocabulary of another size has none: ids go in and come out."""
    if config.vocab_size != VOCAB_SIZE:
        keys = {"model": "none"}
    else:
        keys = {
            "model": "gpt2", "pre": "kimi-k2",
            "tokens": [byte_spelling(byte) for byte in range(256)] + list(SPECIALS.values()),
            "token_type": [NORMAL] * 256 + [CONTROL] * len(SPECIALS),
            "bos_token_id": BOS, "eos_token_id": EOS, "padding_token_id": PAD,
            "add_bos_token": False, "add_eos_token": False,
        }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def byte_spelling(byte):
    """The one visible character that stands for a byte in GPT-2's vocabulary.

    A visible Latin-1 character stands for itself; the 68 others, in order, for U+0100 and on.

    >>> byte_spelling(65), byte_spelling(32), byte_spelling(10)
    ('A', 'Ġ', 'Ċ')
    """
    hidden = [other for other in range(256) if not _visible(other)]
    return chr(byte) if _visible(byte) else chr(256 + hidden.index(byte))


def _visible(byte):
    """Not a control, not a blank, and not the soft hyphen 173."""
    return 33 <= byte <= 126 or 161 <= byte <= 255 and byte != 173
