"""The whole model in one picture, drawn from its config alone.

Left the stack, read upwards: grey rails are vectors that were kept (the embedding and the sum of each finished block),
the black rail is the running sum of the current block, and each red mix reads the rails on which it has a dot. Right
the inside of one KDA layer, one MLA layer and one MoE with the config's numbers (files architecture_kda, _mla, _moe).
"""

from k3_scratch.config import K3Config
from k3_scratch.plots.architecture_kda import draw_kda
from k3_scratch.plots.architecture_mla import draw_mla
from k3_scratch.plots.architecture_moe import draw_moe
from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.stack_rows import DRAW_EVERY_LAYER, plan
from k3_scratch.plots.style import FAINT, INK, PARTS, PlotError, styled

RAIL = "#8a9199"         # colour of the kept vectors
BOX = 22                 # width of a sublayer's box
MIX, NORM = 5.2, 4.6     # widths of the pills for the mix and for the norm
ROOM = 86                # width of the panels on the right


@styled
def architecture(config, title=None):
    """Look at the red mixes: no vector has a straight way up, each sublayer chooses which earlier ones it reads.

    config   a K3Config; up to 8 layers are all drawn, larger models with their repeats grouped
    title    the headline; None: one with the number of layers and the width
    Raises PlotError when config is something else.
    """
    if not isinstance(config, K3Config):
        raise PlotError(f"architecture: config must be a K3Config (see k3_scratch.config.PRESETS), "
                        f"but a {type(config).__name__} came")
    stack = Stack(config)
    height = max(101.0, stack.least_height)
    sheet = Sheet(stack.right + 3 + ROOM + 2, height)
    if title is None:
        title = f"The whole model: {config.num_layers} layers of width {config.hidden_size:,}"
    sheet.text(2.5, height - 3.4, title, size=17, bold=True, across="left")
    sheet.text(2.5, height - 6.6, _subtitle(config, stack.grouped), size=10, across="left", colour="#4b5258")
    stack.draw(sheet, height - 9)
    _panels(sheet, config, stack.right + 3, 2.0, height - 9.5)
    return sheet.fit()


def _subtitle(config, grouped):
    kda, mla = len(config.kda_layers), len(config.mla_layers)
    dense = config.first_k_dense
    way = "No position is added anywhere."
    if config.attn_res_block_size:
        way += " Read the stack upwards; a dot marks a vector that the mix beside it reads"
        way += ", a hollow dot one that only later copies read." if grouped else "."
    else:
        way += " Read the stack upwards; each part adds its output to the running sum."
    return f"{kda} KDA + {mla} MLA layers; {dense} dense FFN + {config.num_layers - dense} MoE.  {way}"


def _panels(sheet, config, x, y, top):
    """KDA above, MLA and MoE side by side below; a part that the model lacks leaves its room to the others."""
    has_mla, has_moe = bool(config.mla_layers), config.first_k_dense < config.num_layers
    lower_top = y
    if has_mla or has_moe:
        lower_top = y + (top - y) * (0.49 if config.kda_layers else 1.0)
        split = 0.53 if has_mla and has_moe else (1.0 if has_mla else 0.0)
        gap = 1.0 if config.kda_layers else 0.0
        if has_mla:
            draw_mla(sheet, config, x, y, ROOM * split - (1 if has_moe else 0), lower_top - gap - y)
        if has_moe:
            left = x + ROOM * split + (1 if has_mla else 0)
            draw_moe(sheet, config, left, y, x + ROOM - left, lower_top - gap - y)
    if config.kda_layers:
        start = lower_top + (1.0 if has_mla or has_moe else 0.0)
        draw_kda(sheet, config, x, start, ROOM, top - start)


class Stack:
    """The left part: embedding, blocks of layers, final mix, norm and head."""

    def __init__(self, config):
        self.config, self.blocks = config, plan(config)
        self.deep = config.attn_res_block_size is not None
        count = self.blocks[-1].index + self.blocks[-1].times if self.deep else 0
        step = 2.6 if count <= 3 else 1.55
        self.rails = [4.5 + i * step for i in range(count)]
        self.sum_x = (self.rails[-1] + 3.2) if count else 5.0
        self.mix_x = self.sum_x + 2.4
        self.norm_x = self.mix_x + (MIX + 1.6 if self.deep else 0.6)
        self.box_x = self.norm_x + NORM + 1.6
        self.right = self.box_x + BOX + (14 if config.num_layers > DRAW_EVERY_LAYER else 9)
        self.grouped = any(block.times > 1 for block in self.blocks)
        self.edge = self.right - (4.6 if self.grouped else 2.4)      # right edge of a block's frame
        self.rows = 2 * sum(len(block.rows) for block in self.blocks) + 1
        self.above = 9.5 if self.deep else 3.0                       # names of the rails
        self.below = 13.5 if config.vision else 11.0                 # tokens, embedding
        self.gaps = 2.8 * (len(self.blocks) - 1) + 1.5
        self.least_height = 9 + self.above + self.below + self.gaps + 4.0 * self.rows

    def draw(self, sheet, top):
        """Draw the whole column on `sheet`, up to height `top`."""
        self.sheet = sheet
        self.pitch = min(8.2, (top - self.above - self.below - self.gaps - 1) / self.rows)
        self.tall = min(4.2, self.pitch * 0.62)
        y = self._embedding()
        self.sum_from = y if not self.deep else None                 # where the black rail of this block starts
        self.ends = []                                               # (rail, y where it starts)
        if self.deep:
            self.ends.append((self.rails[0], y))
        for position, block in enumerate(self.blocks):
            y = self._block(block, y, last=position == len(self.blocks) - 1)
        self._head(y + 1.5)

    def _embedding(self):
        sheet, config = self.sheet, self.config
        left = 2.5
        wide = 21 if config.vision else 26
        x = self.rails[0] if self.deep else self.sum_x
        sheet.text(left + wide / 2, 3.0, "token ids  [B, T]", size=9)
        sheet.arrow([(left + wide / 2, 4.1), (left + wide / 2, 5.6)])
        sheet.box(left, 5.6, wide, 3.6, f"embedding  {config.vocab_size:,} × {config.hidden_size:,}", PARTS["plain"],
                  size=9)
        start = 9.2
        if config.vision:
            vision = config.vision
            sheet.text(left + wide + 17.5, 3.0, "pictures", size=9)
            sheet.arrow([(left + wide + 17.5, 4.1), (left + wide + 17.5, 5.6)])
            sheet.box(left + wide + 2, 5.6, 31, 3.6, f"{vision.num_layers} vision layers of {vision.hidden_size:,}, "
                      f"projector to {config.hidden_size:,}", PARTS["plain"], size=9)
            sheet.line([(left + wide + 17.5, 9.2), (left + wide + 17.5, 10.7), (x, 10.7)])
            sheet.text(left + wide + 18.5, 10.7, "one sequence", size=8, across="left", slant=True)
            start = 11.2
        sheet.line([(x, 9.2), (x, start)], colour=RAIL if self.deep else INK, width=2.4)
        return start if self.deep else 9.2

    def _block(self, block, y, last):
        sheet = self.sheet
        if block.index == 0:
            y = self.below + 0.3
        bottom = y
        height = self.pitch * 2 * len(block.rows)
        if self.deep:
            left = self.sum_x - 1.6
            for card in range(min(block.times, 4)):                  # cards behind the first one: there are several
                sheet.frame(left + 0.5 * card, bottom - 0.3 + 0.5 * card, self.edge - left, height + 0.9,
                            face="#f4f6f8", edge=FAINT, order=-3 - card)
        existing = min(block.index + 1, len(self.rails))
        for segment in block.segments:
            first_y = y
            for row in segment.rows:
                attention, other = row.kind
                fresh = self.deep and y == bottom
                self._sublayer(y, attention, existing, fresh, block)
                self._sublayer(y + self.pitch, other, existing, False, block)
                self._label_row(y, row, grouped=block.times > 1 or segment.times > 1)
                y += 2 * self.pitch
            if segment.times > 1:
                x = self.right - 8.2
                sheet.line([(x - 0.8, first_y + 0.5), (x, first_y + 0.5), (x, y - 1.3), (x - 0.8, y - 1.3)], width=1.1)
                sheet.text(x + 1.4, (first_y + y) / 2 - 0.4, f"× {segment.times}", size=11, bold=True, turn=90)
        if self.deep:
            name, place = f"AttnRes block {block.index}", self.edge + 1.5
            if block.times > 1:
                name = (f"AttnRes blocks {block.index} to {block.index + block.times - 1}\n"
                        f"{block.times} × {block.layers} layers")
                place = self.edge + 3.7
            sheet.text(place, (bottom + y) / 2 - 0.4, name, size=8.5, turn=90, colour="#4b5258")
        if self.deep and not last:
            turn = y + 1.4
            sheet.line([(self.sum_x, self.sum_from), (self.sum_x, turn), (self.rails[block.index + 1], turn)],
                       width=2.4)
            for copy in range(block.times):
                rail = block.index + 1 + copy
                self.ends.append((self.rails[rail], turn))
                sheet.dot(self.rails[rail], turn, colour=RAIL, radius=0.45)
                if copy < block.times - 1:
                    sheet.line([(self.rails[rail], bottom), (self.rails[rail], turn)], colour=RAIL, width=1.2,
                               dashed=True)
            y += 2.8
        return y

    def _sublayer(self, y, kind, existing, fresh, block):
        """One row: taps, mix, norm, box and the way back to the running sum."""
        sheet, centre = self.sheet, y + self.pitch * 0.40
        self._taps(centre, existing, fresh, block)
        half = self.tall / 2
        sheet.box(self.box_x, centre - half, BOX, self.tall, "", PARTS[kind], strong=True)
        name, facts = self._words(kind)
        sheet.text(self.box_x + 1.2, centre, name, size=10.5, bold=True, across="left")
        sheet.text(self.box_x + BOX - 1.2, centre, facts, size=8.3, across="right")
        back = y + self.pitch * 0.40 + half + (self.pitch - self.tall) * 0.5
        middle = self.box_x + BOX / 2
        if fresh:                          # a new block: the output is the running sum, nothing is added to it
            sheet.line([(middle, centre + half), (middle, back), (self.sum_x, back)])
            self.sum_from = back
            sheet.dot(self.sum_x, back, radius=0.45)
        else:
            sheet.arrow([(middle, centre + half), (middle, back), (self.sum_x + 0.9, back)])
            sheet.operator(self.sum_x, back, "+", radius=min(0.95, (self.pitch - self.tall) * 0.48))

    def _taps(self, y, existing, fresh, block=None):
        """The horizontal line that reads the rails, into the mix (if there is one) and the norm."""
        sheet, half = self.sheet, min(1.35, self.tall / 2)
        single = self.deep and fresh and existing == 1
        if self.deep:
            sheet.line([(self.rails[0], y), (self.mix_x, y)], colour=PARTS["mix"], width=1.1, order=3)
            for x in self.rails[:existing]:
                sheet.dot(x, y, colour=PARTS["mix"])
            for x in self.rails[existing:existing + (block.times - 1 if block else 0)]:
                sheet.dot(x, y, colour=PARTS["mix"], hollow=True, radius=0.32)
            if not fresh:
                sheet.dot(self.sum_x, y, colour=PARTS["mix"])
            sheet.box(self.mix_x, y - half, MIX, 2 * half, "pass" if single else "mix", PARTS["mix"], size=8.5,
                      dashed=single)
            sheet.line([(self.mix_x + MIX, y), (self.norm_x, y)], order=3)
        else:
            sheet.dot(self.sum_x, y)
            sheet.line([(self.sum_x, y), (self.norm_x, y)], order=3)
        sheet.box(self.norm_x, y - half, NORM, 2 * half, "norm", PARTS["plain"], size=8.5)
        sheet.arrow([(self.norm_x + NORM, y), (self.box_x, y)], order=3)

    def _words(self, kind):
        config = self.config
        if kind == "KDA":
            return "KDA", f"{config.num_heads} heads, S {config.kda_key_dim} × {config.kda_value_dim}"
        if kind == "MLA":
            return "MLA", f"{config.num_heads} heads, latent {config.kv_lora_rank}"
        if kind == "MoE":
            shared = f" + {config.num_shared_experts} shared" if config.num_shared_experts else ""
            return "MoE", f"{config.num_experts_per_token} of {config.num_experts}{shared}"
        return "dense FFN", f"{config.intermediate_size:,} wide"

    def _label_row(self, y, row, grouped):
        """Right of the two boxes of a layer: its number, or how many of it follow each other."""
        sheet, x = self.sheet, self.box_x + BOX + 0.7
        low, high = y + self.pitch * 0.40 - self.tall / 2, y + self.pitch * 1.40 + self.tall / 2
        sheet.line([(x, low), (x + 0.6, low), (x + 0.6, high), (x, high)], width=1.0, colour="#4b5258")
        words = f"layer\n{row.first}" if row.count == 1 and not grouped else f"× {row.count}"
        sheet.text(x + 1.2, (low + high) / 2, words, size=9 if grouped or row.count > 1 else 8.5, across="left",
                   bold=grouped or row.count > 1)

    def _head(self, y):
        sheet, config = self.sheet, self.config
        centre = y + self.pitch * 0.40
        half = self.tall / 2
        self._taps(centre, len(self.rails), False)
        sheet.box(self.box_x, centre - half, BOX, self.tall, "", PARTS["plain"], strong=True)
        sheet.text(self.box_x + 1.2, centre, "head", size=10.5, bold=True, across="left")
        sheet.text(self.box_x + BOX - 1.2, centre, f"{config.hidden_size:,} → {config.vocab_size:,}", size=8.3,
                   across="right")
        middle = self.box_x + BOX / 2
        sheet.arrow([(middle, centre + half), (middle, centre + half + 1.8)])
        sheet.text(middle, centre + half + 2.9, "logits  [B, T, vocabulary]", size=9)
        sheet.line([(self.sum_x, self.sum_from), (self.sum_x, centre)], width=2.4)
        for x, start in self.ends:
            sheet.line([(x, start), (x, centre)], colour=RAIL, width=2.0, order=1)
        if self.deep:
            for i, x in enumerate(self.rails):
                sheet.text(x, centre + 1.0, "embedding" if i == 0 else f"block {i - 1}", size=8, turn=90, up="bottom",
                           colour="#4b5258")
            sheet.text(self.sum_x, centre + 1.0, "running sum", size=8, turn=90, up="bottom")
