"""The language model alone, of a model with eyes: what other programs here can read."""

import torch

from k3_scratch.model import K3

EYES = "vision."                                 # where a model keeps its picture encoder


def text_part(model):
    """(the model without its picture encoder, sharing its weights; remarks for the user, perhaps none)."""
    if model.config.vision is None:
        return model, []
    config = model.config.replace(vision=None)
    with torch.device("meta"):
        text = K3(config)
    text.load_state_dict({name: x for name, x in model.state_dict().items() if not name.startswith(EYES)}, assign=True)
    eyes = sum(p.numel() for p in model.vision.parameters())
    return text.eval(), [f"only the text part is written; the picture encoder and its projector ({eyes:,} parameters) "
                         "are left out"]
