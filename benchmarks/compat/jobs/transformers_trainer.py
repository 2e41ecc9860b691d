"""`Trainer` of transformers, as in its examples: a callback, an evaluation, bf16 left off."""

import sys
import tempfile

import transformers
from language import Tokens, make_gpt2
from outcome import report

STEPS = 6


def make_trainer(folder, **options):
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        max_steps=STEPS,
        learning_rate=1e-3,
        logging_steps=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **options,
    )
    return transformers.Trainer(
        model=make_gpt2(), args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(8)
    )


def make_step(batch_size=4):
    trainer = make_trainer(tempfile.mkdtemp(), per_device_eval_batch_size=4)
    trainer.current_gradient_accumulation_steps = 1
    trainer.create_optimizer_and_scheduler(STEPS)
    model = trainer.accelerator.prepare(trainer.model)
    optimizer = trainer.accelerator.prepare(trainer.optimizer)
    batch = next(iter(trainer.get_train_dataloader()))

    def step():
        loss = trainer.training_step(model, batch)
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        optimizer.step()
        model.zero_grad()
        return loss

    return step


def main():
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder)
        result = trainer.train()
        trainer.evaluate()
        if "--save" in sys.argv:
            trainer.save_model(folder)
    report(result.training_loss, result.global_step)


if __name__ == "__main__":
    main()
