"""timm as in its train.py: mixup, its optimizer and schedule, an average of the weights, AMP, accuracy."""

import timm
import torch
from outcome import pick_device, report
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, NativeScaler, accuracy

STEPS = 4


def make_training(batch_size):
    torch.manual_seed(0)
    device = pick_device()
    model = timm.create_model("resnet10t", num_classes=10).to(device)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=STEPS)
    average, scaler, loss_function = ModelEmaV3(model), NativeScaler(), SoftTargetCrossEntropy()

    def train(images, targets, number=0):
        images, targets = images.to(device), targets.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            outputs = model(images)
            loss = loss_function(outputs, targets)
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        average.update(model, step=number)
        schedule.step(number)
        return loss, outputs

    return train


def make_batch(size, number=0):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(size, 3, 64, 64, generator=generator), torch.randint(10, (size,), generator=generator)


def make_step(batch_size=8):
    train = make_training(batch_size)
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    images, targets = mixup(*make_batch(batch_size))
    return lambda: train(images, targets)


def main():
    train = make_training(8)
    losses = AverageMeter()
    for number in range(STEPS):
        images, labels = make_batch(8, number)
        targets = torch.nn.functional.one_hot(labels, 10).float()
        loss, outputs = train(images, targets, number)
        top1, _ = accuracy(outputs.detach(), labels.to(outputs.device), topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        print(f"step {number}: loss {losses.avg:.4f}, accuracy {top1.item():.1f}")
    report(losses.avg, STEPS)


if __name__ == "__main__":
    main()
