"""`Trainer` with bf16, checkpointing, accumulation, Adafactor and a padded last batch."""

import tempfile

import torch
import transformers
from language import Tokens, make_llama
from outcome import report


def main():
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            bf16=True,
            optim="adafactor",
            lr_scheduler_type="cosine",
            warmup_steps=2,
            num_train_epochs=1,
            logging_steps=1,
            report_to=[],
            save_steps=4,
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = transformers.Trainer(model=make_llama(), args=arguments, train_dataset=Tokens(22))
        result = trainer.train()
    report(result.training_loss, result.global_step)


if __name__ == "__main__":
    main()
