"""The inside of one KDA layer, for the picture of the architecture."""

from k3_scratch.plots.style import PARTS, darker, tint

COLOUR = PARTS["KDA"]


def draw_kda(sheet, config, x, y, width, height):
    """Panel with lower left corner (x, y): six paths from the input, the state in the middle, the output on top."""
    wide, heads = config.hidden_size, config.num_heads
    key, value = config.kda_key_dim, config.kda_value_dim
    sheet.frame(x, y, width, height, edge=COLOUR, line=1.6, order=-2)
    sheet.text(x + 2, y + height - 2.4, "KDA", size=13, bold=True, across="left", colour=darker(COLOUR))
    sheet.text(x + 8.5, y + height - 2.5, "a matrix memory S per head: it forgets by channel, erases, writes, is read",
               size=9.5, across="left")

    room = height - 9.2
    weights = (1, 1, 1, 1.25, 0.75, 1 if config.use_full_rank_gate else 1.25)
    lanes = [(width - 4) * weight / sum(weights) for weight in weights]
    middles = [x + 2 + sum(lanes[:i]) + lane / 2 for i, lane in enumerate(lanes)]
    levels = [y + 4.6 + room * part for part in (0.0, 0.145, 0.255, 0.365)]
    first, tall = min(4.2, room * 0.115), min(3.4, room * 0.078)      # heights of a matrix and of the steps after it

    sheet.line([(middles[0], y + 3.1), (middles[5], y + 3.1)], width=1.6)
    sheet.text(x + width / 2, y + 1.6, f"x: what the layer reads, after mix and norm   [B, T, {wide:,}]"
               if config.attn_res_block_size else f"x: what the layer reads, after the norm   [B, T, {wide:,}]", size=9)

    keys, values = f"{heads * key:,}", f"{heads * value:,}"
    through = "" if config.use_full_rank_gate else f"{key} → "
    bound = config.gate_lower_bound
    decay = f"g = {bound:g} · σ($e^A$ z)".replace("-", "−") if bound is not None else "g = −$e^A$ softplus(z)"
    columns = [
        [f"$W_q$\n{wide:,} → {keys}", f"convolve {config.conv_size} taps", "SiLU", "unit length / √K"],
        [f"$W_k$\n{wide:,} → {keys}", f"convolve {config.conv_size} taps", "SiLU", "unit length"],
        [f"$W_v$\n{wide:,} → {values}", f"convolve {config.conv_size} taps", "SiLU", None],
        [f"$W_f$\n{wide:,} → {key} → {keys}", "z = · + bias", decay, "α = $e^g$"],
        [f"$W_b$\n{wide:,} → {heads}", "σ", None, None],
        [f"$W_g$\n{wide:,} → {through}{values}", "σ", None, None],
    ]
    memory = y + 4.6 + room * 0.52
    deep = room * 0.24
    for middle, lane, column in zip(middles, lanes, columns, strict=True):
        bottom = y + 3.1
        for i, (level, words) in enumerate(zip(levels, column, strict=True)):
            if words:
                sheet.arrow([(middle, bottom), (middle, level)])
                bottom = level + (first if i == 0 else tall)
                sheet.box(middle - lane / 2 + 0.7, level, lane - 1.4, bottom - level, words, COLOUR)
        if middle != middles[5]:
            sheet.arrow([(middle, bottom), (middle, memory)])
    names = (f"q  [{heads}, {key}]", f"k  [{heads}, {key}]", f"v  [{heads}, {value}]", f"α  [{heads}, {key}]",
             f"β  [{heads}]")
    for middle, name in zip(middles, names, strict=False):
        sheet.text(middle + 0.6, memory - 1.5, name, size=8.5, bold=True, across="left")

    left, right = x + 2.7, middles[4] + lanes[4] / 2 - 0.7
    memory_box = sheet.box(left, memory, right - left, deep, "", COLOUR, strong=True)
    _state(sheet, left + 3.4, memory + 0.56 * deep, deep * 0.60, key, value)
    text_x = left + 3.4 + deep * 0.60 + 3.0
    sheet.text(text_x, memory + deep * 0.80,
               f"State S, {heads} heads of {key} × {value}: same size after a million tokens", size=9.5, bold=True,
               across="left", box=memory_box)
    steps = (("decay", "S ← diag(α) S"), ("erase, write", "S ← S + β k (v − Sᵀk)ᵀ"), ("read", "o = Sᵀ q"))
    for i, (word, line) in enumerate(steps):
        at = memory + deep * (0.575 - 0.205 * i)
        sheet.text(text_x, at, f"{i + 1}  {word}", size=9.5, across="left")
        sheet.text(text_x + 15, at, line, size=10, across="left")

    up = memory + deep
    read = middles[1]
    norm_y = up + room * 0.045
    sheet.arrow([(read, up), (read, norm_y)])
    sheet.box(read - 9, norm_y, 18, tall, f"norm per head, o [{heads}, {value}]", COLOUR)
    gate_x = middles[3]
    mid = norm_y + tall / 2
    sheet.arrow([(read + 9, mid), (gate_x - 1, mid)])
    sheet.operator(gate_x, mid, "x", radius=1.05)
    sheet.arrow([(middles[5], levels[1] + tall), (middles[5], mid), (gate_x + 1.05, mid)])
    sheet.text(middles[5] - 0.6, memory + deep * 0.5, "output gate", size=8.5, turn=90, across="right")
    sheet.arrow([(gate_x, mid + 1.05), (gate_x, norm_y + tall + 1.6)])
    sheet.box(gate_x - 9, norm_y + tall + 1.6, 18, tall, f"$W_o$  {values} → {wide:,}", COLOUR, size=8.5)
    sheet.arrow([(gate_x + 9, norm_y + tall * 1.5 + 1.6), (gate_x + 12, norm_y + tall * 1.5 + 1.6)])
    sheet.text(gate_x + 12.6, norm_y + tall * 1.5 + 1.6, f"y   [B, T, {wide:,}]", size=9, across="left")


def _state(sheet, x, middle, size, key, value):
    """A small grid that stands for one K × V state."""
    low = middle - size / 2
    cells = 6
    shades = (0.2, 0.55, 0.75, 0.35, 0.65, 0.45, 0.85)
    for row in range(cells):
        for column in range(cells):
            shade = shades[(3 * row + 5 * column + row * column) % len(shades)]
            sheet.frame(x + column * size / cells, low + row * size / cells, size / cells, size / cells,
                        face=tint(COLOUR, shade), edge="white", line=0.8, corner=0.01, order=6)
    sheet.text(x + size / 2, low - 0.9, f"V = {value}", size=8)
    sheet.text(x - 1.1, middle, f"K = {key}", size=8, turn=90)
