"""A denoising UNet of diffusers, as in its unconditional training example, with an average of the weights."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from outcome import report

STEPS = 4


def make_training(batch_size):
    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="no")
    model = UNet2DModel(
        sample_size=32,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    noise_schedule = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = get_cosine_schedule_with_warmup(optimizer, 1, STEPS)
    average = EMAModel(model.parameters())
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    average.to(accelerator.device)

    def train(images):
        images = images.to(accelerator.device)
        noise = torch.randn(images.shape).to(images.device)
        times = torch.randint(0, 1000, (images.shape[0],)).to(images.device)
        noisy = noise_schedule.add_noise(images, noise, times)
        predicted = model(noisy, times, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(predicted, noise)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        return loss

    return train


def make_step(batch_size=4):
    train = make_training(batch_size)
    images = torch.randn(batch_size, 3, 32, 32)
    return lambda: train(images)


def main():
    train = make_training(4)
    for number in range(STEPS):
        loss = train(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(number)))
        print(f"loss {loss.detach().item():.4f}")
    report(loss, STEPS)


if __name__ == "__main__":
    main()
