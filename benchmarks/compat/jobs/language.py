"""Small models of transformers and made-up tokens for them; nothing is downloaded."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY, LENGTH = 512, 64


def make_gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4)
    )


def make_llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
            use_cache=False,
        )
    )


class Tokens(torch.utils.data.Dataset):
    """Sequences of the same tokens in every run."""

    def __init__(self, count=64):
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(3, VOCABULARY, (count, LENGTH), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, position):
        return {"input_ids": self.tokens[position], "labels": self.tokens[position]}
