"""A supervised trainer and an evaluator of ignite, with metrics and a handler of checkpoints."""

import tempfile

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, TerminateOnNan
from ignite.metrics import Accuracy, Loss, RunningAverage
from outcome import pick_device, report


def main():
    torch.manual_seed(0)
    device = pick_device()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
    )
    model(torch.zeros(1, 3, 16, 16))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    loss_function = torch.nn.CrossEntropyLoss()
    data = torch.utils.data.TensorDataset(torch.randn(32, 3, 16, 16), torch.randint(10, (32,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    trainer = create_supervised_trainer(model, optimizer, loss_function, device)
    metrics = {"accuracy": Accuracy(), "loss": Loss(loss_function)}
    evaluator = create_supervised_evaluator(model, metrics, device)
    RunningAverage(output_transform=lambda it: it).attach(trainer, "loss")
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(loader)
        print(f"epoch {engine.state.epoch}: {evaluator.state.metrics}")

    with tempfile.TemporaryDirectory() as folder:
        saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(folder))
        trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        trainer.run(loader, max_epochs=2)
    report(evaluator.state.metrics["loss"], trainer.state.iteration)


if __name__ == "__main__":
    main()
