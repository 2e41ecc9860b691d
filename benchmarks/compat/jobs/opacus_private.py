"""Private training with Opacus: gradients of each sample, Poisson batches, virtual steps, spent epsilon."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from outcome import pick_device, report


def main():
    torch.manual_seed(0)
    device = pick_device()
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 16, 3), torch.nn.GroupNorm(4, 16), torch.nn.ReLU(), torch.nn.Flatten()),
        torch.nn.Linear(16 * 14 * 14, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(10, (64,)))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=torch.utils.data.DataLoader(data, batch_size=16),
        noise_multiplier=0.0,
        max_grad_norm=1.0,
    )
    steps = 0
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=8, optimizer=optimizer) as batches:
        for images, labels in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            steps += not optimizer._is_last_step_skipped
    report(loss, steps)


if __name__ == "__main__":
    main()
