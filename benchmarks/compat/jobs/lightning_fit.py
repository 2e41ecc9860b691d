"""`lightning.Trainer.fit` with a logged loss, a validation loop, a checkpoint and early stopping."""

import tempfile

import lightning
import torch
from language import Tokens, make_gpt2
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from outcome import report


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = make_gpt2()

    def training_step(self, batch, position):
        loss = self.model(**batch).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, position):
        self.log("val_loss", self.model(**batch).loss)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def main():
    lightning.seed_everything(0)
    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            limit_train_batches=3,
            logger=CSVLogger(folder),
            callbacks=[
                EarlyStopping("val_loss", patience=3),
                ModelCheckpoint(folder, monitor="val_loss"),
                LearningRateMonitor(),
            ],
            log_every_n_steps=1,
            gradient_clip_val=1.0,
            enable_progress_bar=False,
            enable_model_summary=True,
        )
        trainer.fit(
            module,
            torch.utils.data.DataLoader(Tokens(), batch_size=4),
            torch.utils.data.DataLoader(Tokens(8), batch_size=4),
        )
    report(trainer.callback_metrics["loss"], trainer.global_step)


if __name__ == "__main__":
    main()
