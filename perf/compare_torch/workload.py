# SPDX-License-Identifier: Apache-2.0
"""What zero_gpt trains, for a program in Python to train the same: its first parameters, from a
checkpoint that zero_gpt wrote, the windows of text that each rank reads in each step, and the
learning rate. Knows nothing of PyTorch."""
import dataclasses
import json
import math
import struct

MASK = (1 << 32) - 1
WINDOW = 1  # Purpose::kWindow of tools/zero_gpt/random.hpp
FLOAT_BYTES = 4

# zero_gpt's defaults (tools/zero_gpt/options.cpp).
LEARNING_RATE = 0.003
WARMUP_STEPS = 50
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
SLOTS = 8
SEED = 1


def philox(key, counter):
    """Philox4x32-10, as in tools/zero_gpt/random.hpp."""
    low, high = key & MASK, key >> 32
    a, b, c, d = counter
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ low, second & MASK, (first >> 32) ^ d ^ high, first & MASK
        low, high = (low + 0x9E3779B9) & MASK, (high + 0xBB67AE85) & MASK
    return a, b, c, d


def window_begin(step, sequence, bound):
    """Where the window of a step's sequence begins, in [0, bound)."""
    words = philox(SEED, (sequence & MASK, sequence >> 32, step, WINDOW))
    return words[1] * bound >> 32


@dataclasses.dataclass(frozen=True)
class Share:
    """What a rank has of a step's batch: consecutive slots, as zero_gpt deals them."""
    rank: int
    ranks: int
    batch: int  # sequences in a slot

    def sequences(self):
        each = SLOTS // self.ranks
        return range(self.rank * each * self.batch, (self.rank + 1) * each * self.batch)

    def windows(self, text, context, step):
        """The rank's windows, one token longer than the context: inputs and targets overlap."""
        bound = len(text) - len(text) // 10 - context  # the last tenth is held out
        begins = (window_begin(step, sequence, bound) for sequence in self.sequences())
        return [text[begin:begin + context + 1] for begin in begins]


def learning_rate(step, steps):
    if step < WARMUP_STEPS:
        return LEARNING_RATE * (step + 1) / WARMUP_STEPS
    least = LEARNING_RATE / 10
    share = min(1.0, (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS))
    return least + (LEARNING_RATE - least) * (1 + math.cos(math.pi * share)) / 2


def read_checkpoint(folder):
    """{name: (shape, list of values)} of the parameters in a checkpoint of tutti::zero."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))["content"]
    tensors = {}
    for tensor in index["tensors"]:
        values = []
        for piece in tensor["pieces"]:
            with open(folder / f"rank-{piece['file']}.bin", "rb") as file:
                file.seek(piece["offset_bytes"])
                values += struct.unpack(f"<{piece['elements']}f",
                                        file.read(piece["elements"] * FLOAT_BYTES))
        tensors[tensor["name"]] = (tensor["shape"], values)
    return tensors
