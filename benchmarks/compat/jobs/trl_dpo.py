"""`DPOTrainer` of TRL with a LoRA adapter, whose reference is the model without the adapter."""

import tempfile

import torch
from datasets import Dataset
from language import make_llama
from outcome import report
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer
from trl_sft import make_tokenizer


def main():
    rows = range(16)
    pairs = Dataset.from_dict(
        {
            "prompt": [f"w{row} w{row + 1}" for row in rows],
            "chosen": [f" w{row + 2} w{row + 3} w{row + 4}" for row in rows],
            "rejected": [f" w{row + 5} w{row}" for row in rows],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = DPOConfig(
            output_dir=folder,
            per_device_train_batch_size=2,
            max_steps=4,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = DPOTrainer(
            model=make_llama(),
            args=arguments,
            train_dataset=pairs,
            processing_class=make_tokenizer(),
            peft_config=LoraConfig(r=4, task_type="CAUSAL_LM"),
        )
        result = trainer.train()
    report(result.training_loss, result.global_step)


if __name__ == "__main__":
    main()
