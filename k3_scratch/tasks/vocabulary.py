"""The 260 tokens: a byte is a token, and four specials follow.

    text    4   7   +   é           <eos>
    ids     52  55  43  195 169     257
"""

from k3_scratch.tasks.arguments import need

BOS, EOS, PAD, IMAGE = 256, 257, 258, 259    # begin, end, filling, place of a picture patch
VOCAB_SIZE = 260
NEWLINE = 10                                 # the byte that ends every example
SPECIALS = {BOS: "<bos>", EOS: "<eos>", PAD: "<pad>", IMAGE: "<image>"}


def encode(text):
    """The UTF-8 bytes of `text` as a list of ids from 0 to 255.

    >>> encode("47+é")
    [52, 55, 43, 195, 169]
    """
    need(isinstance(text, str), "text", "a str", text)
    return list(text.encode("utf-8"))


def decode(ids):
    """The text of `ids` (any iterable of whole numbers).

    Specials are shown by name; bytes that are not UTF-8 become the replacement character U+FFFD.
    Ids beyond the vocabulary, which a model with room for more may write, are shown as numbers. Raises ValueError for a
    negative one.

    >>> decode([52, 55, 43, 195, 169, EOS])
    '47+é<eos>'
    >>> decode([52, 1999])
    '4<1999>'
    """
    out = bytearray()
    for token in ids:
        need(token >= 0, "ids", "numbers from 0 on", token)
        if token >= VOCAB_SIZE:
            out += f"<{token}>".encode()
        elif token in SPECIALS:
            out += SPECIALS[token].encode()
        else:
            out.append(int(token))
    return out.decode("utf-8", errors="replace")
