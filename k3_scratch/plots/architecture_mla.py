"""The inside of one MLA layer, for the picture of the architecture."""

from k3_scratch.plots.sheet import side_by_side
from k3_scratch.plots.style import PARTS, darker

COLOUR = PARTS["MLA"]


def draw_mla(sheet, config, x, y, width, height):
    """Panel with lower left corner (x, y): query, latent, shared key slice and gate, attention above."""
    wide, heads, rank = config.hidden_size, config.num_heads, config.kv_lora_rank
    nope, shared, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    sheet.frame(x, y, width, height, edge=COLOUR, line=1.6, order=-2)
    sheet.text(x + 2, y + height - 2.4, "MLA", size=13, bold=True, across="left", colour=darker(COLOUR))
    sheet.text(x + 8.5, y + height - 2.5, "looks back at every token, cheaply", size=9.5, across="left")
    gated = config.mla_output_gate
    shares = (0.27, 0.27, 0.20, 0.26) if gated else (0.36, 0.38, 0.26)
    lanes, middles = side_by_side(x, width, shares, margin=1.5, gap=0.5)
    room = height - 9.0
    tall = min(4.3, room * 0.122)
    levels = [y + 4.5 + room * part for part in (0.0, 0.165, 0.33)]

    sheet.line([(middles[0], y + 3.1), (middles[-1], y + 3.1)], width=1.6)
    sheet.text(x + width / 2, y + 1.6, f"x   [B, T, {wide:,}]", size=9)

    def column(lane, words, top):
        bottom = y + 3.1
        for level, text in zip(levels, words, strict=True):
            if text:
                sheet.arrow([(middles[lane], bottom), (middles[lane], level)])
                cached = "cache" in text
                sheet.box(lanes[lane][0], level, lanes[lane][1], tall, text, COLOUR, size=8.5, strong=cached)
                bottom = level + tall
        if top is not None:
            sheet.arrow([(middles[lane], bottom), (middles[lane], top)])
        return bottom

    attend = y + 4.5 + room * 0.535
    high = room * 0.19
    per_head = f"{heads} × {config.qk_head_dim}"
    if config.q_lora_rank:
        column(0, (f"$W_{{qa}}$\n{wide:,} → {config.q_lora_rank:,}", "norm",
                   f"$W_{{qb}}$\n{config.q_lora_rank:,} → {per_head}"), attend)
    else:
        column(0, (f"$W_q$\n{wide:,} → {per_head}", None, None), attend)
    column(1, (None, f"norm\ncache {rank}", f"$W_{{kvb}}$\n{rank} → {heads} × {nope + value}"), attend)
    column(2, (None, f"cache {shared}\nnot rotated", None), attend)
    both = (lanes[1][0], lanes[2][0] + lanes[2][1])
    sheet.box(both[0], levels[0], both[1] - both[0], tall, f"$W_{{kva}}$\n{wide:,} → {rank} + {shared}", COLOUR)
    for lane, name in enumerate((f"q  {nope} + {shared}", f"k {nope}, v {value}", f"k {shared}")):
        sheet.text(middles[lane] + 0.6, attend - 1.3, name, size=8.5, bold=True, across="left")

    left, right = lanes[0][0], lanes[2][0] + lanes[2][1]
    attention = sheet.box(left, attend, right - left, high, "", COLOUR, strong=True)
    sheet.text((left + right) / 2, attend + high * 0.70, f"softmax( q · k / √{config.qk_head_dim} ), then mix the v",
               size=9, bold=True, box=attention)
    sheet.text((left + right) / 2, attend + high * 0.28, f"{rank} + {shared} = {rank + shared} values cached per token",
               size=8.5, box=attention)
    top = y + 4.5 + room * 0.785
    middle = (left + right) / 2
    if gated:
        end = column(3, (f"$W_g$\n{wide:,} → {heads * value:,}", "σ", None), None)
        sheet.arrow([(middle, attend + high), (middle, top - 0.2)])
        sheet.operator(middle, top + 0.85, "x", radius=1.05)
        sheet.arrow([(middles[3], end), (middles[3], top + 0.85), (middle + 1.05, top + 0.85)])
        sheet.text(middles[3] - 0.7, attend + high * 0.5, "output gate", size=8.5, turn=90, across="right")
        sheet.arrow([(middle, top + 1.9), (middle, top + 3.1)])
    else:
        sheet.arrow([(middle, attend + high), (middle, top + 3.1)])
    sheet.box(middle - 8.5, top + 3.1, 17, tall, f"$W_o$\n{heads * value:,} → {wide:,}", COLOUR, size=8.5)
    sheet.arrow([(middle + 8.5, top + 3.1 + tall / 2), (middle + 11, top + 3.1 + tall / 2)])
    sheet.text(middle + 11.5, top + 3.1 + tall / 2, f"y  [B, T, {wide:,}]", size=9, across="left")
