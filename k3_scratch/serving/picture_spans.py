"""Where the pictures of a prompt stand: no call may cut one, and no two pictures may share a name."""

import torch

from k3_scratch.vision import check_images, picture_tokens


def picture_spans(config, prompt, images):
    """[(start, stop)] of the markers of each picture, in order.

    prompt    token numbers;  images [P, Y, X, C] uint8 as in `K3.forward`, or None
    Raises ValueError when markers and pictures do not fit together, or the model has no picture encoder.
    """
    if config.vision is None:
        if images is not None:
            raise ValueError("images needs a model with a vision encoder, and this configuration has none")
        return []
    check_images(config.vision, torch.tensor([prompt]), images)
    if images is None:
        return []
    each = picture_tokens(config.vision, *images.shape[1:3])
    places = [place for place, token in enumerate(prompt) if token == config.vision.image_token]
    return [(places[first], places[first + each - 1] + 1) for first in range(0, len(places), each)]


def picture_bytes(spans, images):
    """{first marker: the picture's pixels}, what `block_hashes` wants to know besides the tokens."""
    return {start: images[number].cpu().numpy().tobytes() for number, (start, _) in enumerate(spans)}
