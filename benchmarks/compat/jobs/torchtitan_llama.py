"""The trainer of torchtitan with its debugging model: FSDP2, selective checkpointing, made-up texts."""

import sys
import tempfile
from pathlib import Path

# It imports Triton, which is not on the path of other jobs.
sys.path.append(str(Path(sys.prefix) / "triton"))

import torch.distributed as dist
from datasets import Dataset
from outcome import report
from tokenizers import Tokenizer, models, pre_tokenizers
from torchtitan.hf_datasets import DatasetConfig, text_datasets
from torchtitan.models.llama3 import config_registry, model_registry
from torchtitan.tools.logging import init_logger

STEPS, WORDS = 4, 64


if not hasattr(dist, "set_timeout"):  # of the PyTorch that comes after 2.13
    dist.set_timeout = lambda timeout, group=None: None


def write_tokenizer(folder):
    words = {**{f"w{number}": number for number in range(WORDS)}, "<eos>": WORDS}
    tokenizer = Tokenizer(models.WordLevel(words))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(Path(folder) / "tokenizer.json"))
    (Path(folder) / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}', encoding="utf-8")


def load_texts(path):
    texts = [" ".join(f"w{(row * step) % WORDS}" for step in range(200)) for row in range(64)]
    return Dataset.from_dict({"text": texts})


def main():
    init_logger()
    text_datasets.DATASETS["made_up"] = DatasetConfig("", load_texts, lambda sample: sample["text"])
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(folder)
        config = config_registry.llama3_debugmodel()
        config.model_spec = model_registry("debugmodel", attn_backend="flex")
        config.hf_assets_path = folder
        config.dump_folder = folder
        config.dataloader.dataset = "made_up"
        config.training.local_batch_size = 2
        config.training.seq_len = 64
        config.training.steps = STEPS
        config.validator.enable = False
        config.checkpoint.enable = False
        config.debug.seed = 0
        config.parallelism.spmd_backend = "partial_dtensor"
        config.training.disable_cuda_graphs = True
        trainer = config.build()
        forward_backward, losses = trainer.forward_backward_step, []

        def note(*args, **kwargs):
            losses.append(forward_backward(*args, **kwargs))
            return losses[-1]

        trainer.forward_backward_step = note
        trainer.train()
        # The parts of the ranks add up to the mean over all tokens.
        loss = losses[-1].detach().clone()
        dist.all_reduce(loss)
        report(loss, STEPS)
        trainer.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
