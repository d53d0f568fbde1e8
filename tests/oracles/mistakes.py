"""All deliberate mistakes in one table: faults of from-scratch versions of K3 whose own tests were all green.

    with MISTAKES["no_erase_term"].planted():
        model(tokens)                                                    # wrong here, right again afterwards

MISTAKES show in the logits (they need K = V, a bounded gate, a latent with its norm, and an even shared key slice);
UNSEEN do not, for the reason that stands beside each, and are caught by a test of the property itself.
"""

import mistakes_attention
import mistakes_feed_forward
import mistakes_over_depth
import mistakes_unseen
from mistake import MISTAKES, UNSEEN, Mistake

__all__ = ["MISTAKES", "UNSEEN", "Mistake", "mistakes_attention", "mistakes_feed_forward", "mistakes_over_depth",
           "mistakes_unseen"]                                            # those modules enter their mistakes themselves
