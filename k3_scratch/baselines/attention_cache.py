"""What a softmax attention layer remembers: a key and a value per head and token, of all tokens or of the last few."""

import copy

import torch

from k3_scratch.layers.mla_attention import MLACache


class AttentionCache(MLACache):
    """The growing rows of `MLACache`, here H K numbers of keys and H V of values a token.

    rows   [B, capacity, H (K + V)]   with a window the last `window` rows and no more
    real   [B, capacity]              False at pads
    tail   [B, taps - 1, 2HK + HV]    the last inputs of the convolution; None without one
    fed    tokens so far, pads included: the position of the next one
    """

    def __init__(self, config, batch_size, dtype, device, window=None, convolution=False):
        self.heads = config.num_heads
        keys, values = config.num_heads * config.kda_key_dim, config.num_heads * config.kda_value_dim
        super().__init__(config.replace(kv_lora_rank=keys, qk_rope_head_dim=values), batch_size, dtype, device)
        self.window, self.fed, self.tail = window, 0, None
        if convolution:
            self.tail = torch.zeros(batch_size, config.conv_size - 1, 2 * keys + values, dtype=dtype, device=device)

    def extend(self, k, v, mask):
        """Add k [B, T, H, K] and v [B, T, H, V]; returns those that the new tokens may see, and `real` [B, S].

        With a window up to `window` old rows come before the T new ones, however many the cache was fed.
        """
        self.fed += k.shape[1]
        keys, values, real = self.append(torch.cat([k.flatten(2), v.flatten(2)], -1), mask)
        if self.window is not None and self.length > self.window:        # keep copies of the last rows alone
            self.rows, self.real = self.rows[:, :self.length], self.real[:, :self.length]
            self.rows, self.real = self.rows[:, -self.window:].clone(), self.real[:, -self.window:].clone()
            self.length = self.window
        return keys.unflatten(-1, (self.heads, -1)), values.unflatten(-1, (self.heads, -1)), real

    def reset(self):
        super().reset()
        self.fed = 0
        if self.tail is not None:
            self.tail = torch.zeros_like(self.tail)

    def clone(self):
        other = copy.copy(self)
        for name in ("rows", "real", "tail"):
            value = getattr(self, name)
            setattr(other, name, None if value is None else value.clone())
        return other

    def nbytes(self):
        """Bytes of the rows in use and of the tail."""
        return super().nbytes() + (0 if self.tail is None else self.tail.nbytes)
