"""What a run is trained on: a text, pictures for a model with eyes, or the corpus."""

from k3_scratch.tasks.corpus import Corpus
from k3_scratch.tasks.glyphs import SIDE
from k3_scratch.tasks.pictures import MARKERS, Pictures
from k3_scratch.tasks.text import TextFile
from k3_scratch.tasks.vocabulary import IMAGE
from k3_scratch.training.run_folder import RunError
from k3_scratch.vision import picture_tokens


def training_data(config, text, length):
    """The data of a configuration: `text` (a path) if one is named, else `Pictures` or `Corpus`, rows of `length`.

    Raises ValueError (RunError when the picture encoder does not fit the pictures that are drawn here).
    """
    if text:
        return TextFile(text, length)
    if config.vision is None:
        return Corpus(length)
    vision = config.vision
    if (vision.num_channels, vision.image_token, picture_tokens(vision, SIDE, SIDE)) != (3, IMAGE, MARKERS):
        raise RunError(f"vision must take pictures of {SIDE} x {SIDE} x 3 as {MARKERS} tokens {IMAGE} each "
                       f"(patch_size times merge = 4), but {vision} came")
    return Pictures(length)
