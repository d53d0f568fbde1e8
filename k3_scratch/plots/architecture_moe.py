"""The inside of one mixture of experts, for the picture of the architecture."""

from k3_scratch.plots.sheet import side_by_side
from k3_scratch.plots.style import PARTS, darker

COLOUR = PARTS["MoE"]
SHOWN = 8          # squares that stand for the experts


def draw_moe(sheet, config, x, y, width, height):
    """Panel with lower left corner (x, y): router left, routed experts in the middle, shared experts right."""
    wide, latent, hidden = config.hidden_size, config.moe_latent_size, config.moe_intermediate_size
    experts, chosen = config.num_experts, config.num_experts_per_token
    sheet.frame(x, y, width, height, edge=COLOUR, line=1.6, order=-2)
    sheet.text(x + 2, y + height - 2.4, "LatentMoE" if latent else "MoE", size=13, bold=True, across="left",
               colour=darker(COLOUR))
    sheet.text(x + (14.5 if latent else 9), y + height - 2.5, f"each token asks {chosen} of {experts}", size=9.5,
               across="left")
    has_shared = config.num_shared_experts > 0
    shares = (0.31, 0.44, 0.25) if has_shared else (0.42, 0.58)
    lanes, middles = side_by_side(x, width, shares, margin=1.2, gap=0.7)
    room = height - 9.0
    tall = min(4.3, room * 0.115)
    level = [y + 4.5 + room * part for part in (0.0, 0.165, 0.33, 0.505, 0.64, 0.775)]
    sheet.line([(middles[0], y + 3.1), (middles[-1], y + 3.1)], width=1.6)
    sheet.text(x + width / 2, y + 1.6, f"x   [B, T, {wide:,}]", size=9)

    def box(lane, at, words, height=tall, strong=False):
        return sheet.box(lanes[lane][0], at, lanes[lane][1], height, words, COLOUR, size=8.5, strong=strong)

    def up(lane, low, high):
        sheet.arrow([(middles[lane], low), (middles[lane], high)])

    # the router
    scale = f" · {config.routed_scaling_factor:g}" if config.routed_scaling_factor != 1 else ""
    up(0, y + 3.1, level[0])
    box(0, level[0], f"$W_r$\n{wide:,} → {experts}")
    up(0, level[0] + tall, level[1])
    box(0, level[1], "s = σ(·)")
    up(0, level[1] + tall, level[2])
    box(0, level[2], f"top {chosen} of s + b")
    up(0, level[2] + tall, level[3])
    box(0, level[3], f"p = s / Σ s{scale}", height=0.8 * tall)

    # the routed experts
    low = y + 3.1
    if latent:
        up(1, low, level[0])
        box(1, level[0], f"$W_{{down}}$\n{wide:,} → {latent:,}")
        low = level[0] + tall
    up(1, low, level[1])
    high = level[2] + tall - level[1]
    width_in = config.expert_size
    name = "SiTU-GLU" if config.activation == "situ" else "SwiGLU"
    experts_box = box(1, level[1], "", height=high, strong=True)
    _squares(sheet, lanes[1][0], level[1] + high * 0.60, lanes[1][1], high * 0.30, experts, chosen)
    sheet.text(middles[1], level[1] + high * 0.25, f"{name}\n{width_in:,} → {hidden:,} → {width_in:,}", box=experts_box)
    up(1, level[2] + tall, level[3])
    box(1, level[3], "Σ  p · expert", height=0.8 * tall)
    sheet.arrow([(lanes[0][0] + lanes[0][1], level[3] + 0.4 * tall), (lanes[1][0], level[3] + 0.4 * tall)])
    end = level[3] + 0.8 * tall
    if config.moe_latent_norm:
        up(1, end, level[4])
        box(1, level[4], "norm", height=0.8 * tall)
        end = level[4] + 0.8 * tall
    if latent:
        up(1, end, level[5])
        box(1, level[5], f"$W_{{up}}$\n{latent:,} → {wide:,}")
        end = level[5] + tall

    # the shared experts and the sum
    top = level[5] + tall + 1.3
    out = top + 1.0
    if has_shared:
        size = config.num_shared_experts * hidden
        middle_high = level[2] + tall - level[1]
        up(2, y + 3.1, level[1])
        box(2, level[1], "", height=middle_high)
        words = ("shared", f"{wide:,}", f"→ {size:,}", f"→ {wide:,}")
        for i, word in enumerate(words):
            sheet.text(middles[2], level[1] + middle_high * (0.86 - 0.24 * i), word, size=8.5, bold=i == 0)
        sheet.arrow([(middles[2], level[2] + tall), (middles[2], out), (middles[1] + 1.0, out)])
        up(1, end, out - 1.0)
        sheet.operator(middles[1], out, "+", radius=1.0)
        sheet.arrow([(middles[1] - 1.0, out), (middles[1] - 4, out)])
    else:
        sheet.line([(middles[1], end), (middles[1], out)])
        sheet.arrow([(middles[1], out), (middles[1] - 4, out)])
    sheet.text(middles[1] - 4.6, out, f"y  [B, T, {wide:,}]", size=9, across="right")


def _squares(sheet, x, y, width, size, experts, chosen):
    """A row of squares, the chosen ones filled."""
    count = min(SHOWN, experts)
    step = (width - 2) / count
    side = min(step * 0.78, size)
    picked = {round((i + 0.5) * count / min(chosen, 2) - 0.5) for i in range(min(chosen, 2, count))}
    for i in range(count):
        sheet.frame(x + 1 + step * (i + 0.5) - side / 2, y, side, side, face=COLOUR if i in picked else "white",
                    edge=COLOUR, line=1.0, corner=0.15, order=6)
