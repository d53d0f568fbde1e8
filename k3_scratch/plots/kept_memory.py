"""What each layer keeps of a text between two tokens, to scale: one number is one small square."""

from k3_scratch.config import K3Config
from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import INK, PARTS, PlotError, styled

NUMBER = 0.26            # tenths of an inch, side of the square of one number
LARGEST = 64             # layers of a configuration that is drawn to scale, and channels of one state
NAMES = 9.0              # room for the names at the left


@styled
def kept_memory(config, tokens):
    """Compare the areas: KDA layers keep states, which never grow, MLA layers one row more for every token.

    config  a K3Config small enough to be drawn to scale;   tokens  length of the text
    Raises PlotError for a configuration that is too large or no length.
    """
    if not isinstance(config, K3Config) or max(config.num_layers, config.kda_key_dim, config.kda_value_dim) > LARGEST:
        raise PlotError(f"kept_memory: config must be a K3Config with at most {LARGEST} layers and channels of a "
                        f"head, but {config!r} came")
    if tokens < 1:
        raise PlotError(f"kept_memory: tokens must be at least 1, but {tokens} came")
    H, K, V = config.num_heads, config.kda_key_dim * NUMBER, config.kda_value_dim * NUMBER
    row = config.kv_lora_rank + config.qk_rope_head_dim
    channels = H * (2 * config.kda_key_dim + config.kda_value_dim)
    tail_x = NAMES + max(H * (V + 0.8), 22) + 2.2                    # at least the room of the words
    width = max(tail_x + max(channels * NUMBER, 40), NAMES + tokens * NUMBER + 24, 72) + 1.5     # room for the words
    heights = [(row * NUMBER if config.is_mla(i) else K) + 2.6 for i in range(config.num_layers)]
    sheet = Sheet(width, sum(heights) + 4.4)
    y = 1.0
    for i, height in enumerate(heights):                             # layer 0 at the bottom, as in the model
        kind = "MLA" if config.is_mla(i) else "KDA"
        middle = y + (height - 2.6) / 2
        sheet.text(0.8, middle, f"layer {i}\n{kind}", across="left", size=9.5, bold=True)
        if kind == "MLA":
            latent = config.kv_lora_rank * NUMBER
            for t in range(tokens):
                x = NAMES + t * NUMBER
                for start, tall, share in ((0, latent, 0.25), (latent, row * NUMBER - latent, 0.6)):
                    _bar(sheet, x, y + start, NUMBER, tall, share)
            sheet.text(NAMES + tokens * NUMBER + 1, middle,
                       f"{tokens} rows of {config.kv_lora_rank} + {config.qk_rope_head_dim} numbers\n"
                       f"= {tokens * row:,}, one row more a token", across="left", size=9)
        else:
            for head in range(H):
                sheet.frame(NAMES + head * (V + 0.8), y, V, K, face="#d3e6f7", edge=PARTS["KDA"], corner=0.05)
            taps = (config.conv_size - 1) * NUMBER
            sheet.frame(tail_x, y, channels * NUMBER, taps, face="#9cc5ec", edge=PARTS["KDA"], corner=0.05)
            sheet.text(tail_x, y + taps + 0.8, f"tail: {config.conv_size - 1} rows of {channels} numbers before the "
                       f"convolution = {(config.conv_size - 1) * channels:,}", across="left", up="bottom", size=9)
            sheet.text(NAMES, y + K + 0.4, f"state: {H} heads of {config.kda_key_dim} × {config.kda_value_dim} = "
                       f"{H * config.kda_key_dim * config.kda_value_dim:,}", across="left", up="bottom", size=9)
        y += height
    sheet.text(0.8, sheet.height - 1.8, f"What each layer keeps after {tokens} tokens (one number = one small square)",
               across="left", size=12, bold=True)
    return sheet.fit()


def _bar(sheet, x, y, width, height, share):
    """One token's piece of a row; `share` of white in its colour."""
    sheet.axes.bar(x, height, width, bottom=y, align="edge", edgecolor=INK, linewidth=0.25,
                   facecolor=tuple(share + (1 - share) * int(PARTS["MLA"][i:i + 2], 16) / 255 for i in (1, 3, 5)))
