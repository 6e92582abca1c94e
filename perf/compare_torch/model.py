# SPDX-License-Identifier: Apache-2.0
"""zero_gpt's model as PyTorch's users write it: GPT-2 with the layer norm first, learned positions,
GELU with tanh, and a head that shares its matrix with the token embedding."""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.projection = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def forward(self, x):
        x = x + self.projection(self.attend(self.norm1(x)))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def attend(self, x):
        sequences, context, channels = x.shape
        parts = self.qkv(x).view(sequences, context, 3, self.heads, channels // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(sequences, context, channels)


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, channels, heads, layers):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, channels)
        self.position_embedding = nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.final_norm = nn.LayerNorm(channels)
        self.register_buffer("positions", torch.arange(context), persistent=False)

    def forward(self, inputs, targets):
        """The mean loss of the tokens."""
        x = self.token_embedding(inputs) + self.position_embedding(self.positions)
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.final_norm(x), self.token_embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def load(self, tensors):
        """Takes the parameters of a checkpoint that zero_gpt wrote; all of them."""
        own = dict(self.named_parameters())
        names = {name: parameter_name(name) for name in tensors}
        if set(names.values()) != set(own):
            raise ValueError(f"the checkpoint has other parameters: {sorted(names)}")
        with torch.no_grad():
            for name, (shape, values) in tensors.items():
                value = torch.tensor(values).view(shape)
                # zero_gpt's matrices are [inputs, outputs], but for the embeddings.
                is_linear = value.dim() == 2 and name.endswith(".weight")
                own[names[name]].copy_(value.T if is_linear else value)


def parameter_name(name):
    """The name here of what zero_gpt calls block0.norm1.gain, token_embedding, ..."""
    if name.startswith("block"):
        block, _, rest = name.partition(".")
        name = f"blocks.{block.removeprefix('block')}.{rest}"
    if name.endswith("embedding"):
        return name + ".weight"
    return name.removesuffix(".gain") + ".weight" if name.endswith(".gain") else name
