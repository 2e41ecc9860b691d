"""`SFTTrainer` of TRL on texts, with a tokenizer made here."""

import tempfile

import torch
from datasets import Dataset
from language import make_llama
from outcome import report
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(200))]


def make_tokenizer():
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = dict(zip(("pad_token", "eos_token", "unk_token"), WORDS, strict=False))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def make_texts():
    return Dataset.from_dict(
        {"text": [" ".join(f"w{(row * 7 + i * i) % 200}" for i in range(20 + row)) for row in range(32)]}
    )


def main():
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=5,
            max_length=64,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = SFTTrainer(
            model=make_llama(), args=arguments, train_dataset=make_texts(), processing_class=make_tokenizer()
        )
        result = trainer.train()
    report(result.training_loss, result.global_step)


if __name__ == "__main__":
    main()
