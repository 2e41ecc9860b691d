"""Wav2Vec2 with CTC, whose masks of time are drawn on the host and select on the card."""

import numpy as np
import torch
from outcome import pick_device, report
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

STEPS = 3


def make_training(batch_size):
    torch.manual_seed(0)
    np.random.seed(0)
    device = pick_device()
    config = Wav2Vec2Config(
        vocab_size=32,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32, 32, 32),
        conv_kernel=(10, 3, 3),
        conv_stride=(5, 4, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        mask_time_length=2,
        layerdrop=0.0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        activation_dropout=0.0,
    )
    model = Wav2Vec2ForCTC(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(1)
    waves = torch.randn(batch_size, 8000, generator=generator).to(device)
    heard = torch.ones(batch_size, 8000, dtype=torch.long)
    heard[0, 6000:] = 0
    heard = heard.to(device)
    labels = torch.randint(1, 32, (batch_size, 12), generator=generator)
    labels[0, 8:] = -100
    labels = labels.to(device)

    def train():
        loss = model(waves, attention_mask=heard, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train


def make_step(batch_size=4):
    return make_training(batch_size)


def main():
    train = make_training(4)
    for _ in range(STEPS):
        loss = train()
        print(f"loss {loss.item():.4f}")
    report(loss, STEPS)


if __name__ == "__main__":
    main()
