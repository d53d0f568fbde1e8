"""All accounts of a model together: as plain JSON types, and as a table for a terminal."""

import dataclasses

from k3_scratch.accounting.flops import flops_per_token
from k3_scratch.accounting.memory import cache_bytes, checkpoint_bytes
from k3_scratch.accounting.parameters import (
    active_with_embedding,
    count_parameters,
    naive_total_without_latent,
    vision_parameters,
)
from k3_scratch.accounting.tensors import need_config, need_integer


def as_json(config, context=0):
    """All the accounts as plain dicts and whole numbers; FLOPs after `context` tokens, caches of context + 1."""
    count = count_parameters(need_config("as_json", config))
    need_integer("as_json", "context", context, 0)
    return {
        "total": count.total, "active": count.active, "routed_experts": count.routed_experts,
        "vision": count.vision, "total_with_vision": count.total_with_vision,
        "checkpoint_bytes": checkpoint_bytes(config),
        "modules": {name: part._asdict() for name, part in count.modules.items()},
        "cache": dataclasses.asdict(cache_bytes(config, context + 1)),
        "flops_per_token": {
            "prefill": dataclasses.asdict(flops_per_token(config, context)),
            "decode": dataclasses.asdict(flops_per_token(config, context, decode=True)),
        },
    }


def table(config, name=""):
    """The accounts as text for a terminal: one row for each part the model has, then the totals. `name` heads it."""
    count, picture = count_parameters(need_config("table", config)), vision_parameters(config)
    cache = cache_bytes(config, 1)
    every = config.num_layers * (config.kv_lora_rank + config.qk_rope_head_dim)
    rows = [("part", "parameters each", "instances", "parameters", "share")]
    for part, (each, number, total) in count.modules.items():
        if total:
            rows.append((part.replace("_", " "), f"{each:,}", f"{number:,}", f"{total:,}",
                         f"{100 * total / count.total:.2f} %"))
    rows += [(f"vision {part}", f"{size:,}", "1", f"{size:,}", "") for part, size in picture.items() if size]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    facts = [("total (text)", f"{count.total:,} = {_short(count.total)}")]
    if naive_total_without_latent(config) != count.total:
        facts.append(("", f"not {_short(naive_total_without_latent(config))}: that forgets that the experts work in "
                          f"the latent, {config.expert_size:,} wide"))
    if count.vision:
        facts.append(("total with vision", f"{count.total_with_vision:,}"))
    facts += [
        ("active per token", f"{count.active:,} = {_short(count.active)}"),
        ("", f"not {_short(active_with_embedding(config))}: that counts the embedding, which is only looked up"),
        ("routed experts", f"{count.routed_experts:,} = {100 * count.routed_experts / count.total:.1f} % of the text"),
        ("checkpoint", _bytes(checkpoint_bytes(config))),
        ("KDA state", f"{_bytes(cache.kda_state)} a sequence, whatever its length"),
        ("MLA cache", f"{cache.mla_values_per_token:,} values a token; if every layer were MLA: {every:,}"),
        ("FLOPs", f"{flops_per_token(config).total:,} for the first token, forward"),
    ]
    width = max(len(label) for label, _ in facts)
    return "\n".join([*filter(None, [name]), *lines, "", *(f"{label:<{width}}  {text}" for label, text in facts)])


def _short(number):
    """2779484476000 -> "2.78 T"."""
    for unit, size in (("T", 10 ** 12), ("B", 10 ** 9), ("M", 10 ** 6), ("k", 10 ** 3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return str(number)


def _bytes(number):
    """Bytes exactly, in the binary unit that fits (up to GiB) and, for large files, in TB."""
    text = f"{number:,} bytes"
    for unit, size in (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10)):
        if number >= size:
            text += f" = {number / size:,.2f} {unit}"
            break
    return text + (f" = {number / 10 ** 12:.2f} TB" if number >= 10 ** 11 else "")
