"""The jobs of the suite, and the packages that it does not try."""

from .running import Job

_TRANSFORMERS = ("transformers", "accelerate")

JOBS = (
    Job("transformers_trainer", "Trainer, GPT-2, evaluation", _TRANSFORMERS, has_factory=True),
    Job("transformers_callback", "Trainer with our callback", _TRANSFORMERS),
    Job("transformers_bf16_checkpointing", "Trainer, bf16, checkpointing, Adafactor", _TRANSFORMERS),
    Job("transformers_speech", "Wav2Vec2, CTC, masks", ("transformers",), has_factory=True),
    Job("trl_sft", "SFTTrainer, Llama", ("trl", "datasets")),
    Job("trl_dpo", "DPOTrainer with LoRA", ("trl", "peft")),
    Job("peft_lora", "LoRA, own loop", ("peft",), has_factory=True),
    Job("accelerate_loop", "Accelerator, bf16, accumulation", ("accelerate",), has_factory=True),
    Job("lightning_fit", "Trainer.fit, validation, checkpoints", ("lightning",)),
    Job("lightning_callback", "Trainer.fit with our callback", ("lightning",)),
    Job("lightning_fabric", "Fabric, bf16", ("lightning",), has_factory=True),
    Job("timm_train", "ResNet, mixup, EMA, AMP", ("timm",), has_factory=True),
    Job("diffusers_unet", "UNet2DModel, EMA", ("diffusers", "accelerate"), has_factory=True),
    Job("keras_fit", "model.fit, torch backend", ("keras",)),
    Job("keras_callback", "model.fit with our callback", ("keras",)),
    Job("ignite_trainer", "supervised trainer, metrics", ("pytorch-ignite",)),
    Job("loggers_offline", "TensorBoard, W&B offline, MLflow", ("tensorboard", "wandb", "mlflow-skinny")),
    Job("opacus_private", "private SGD, virtual steps", ("opacus",)),
    Job("torch_ddp", "DDP, no_sync, 2 ranks", ("torch",), ranks=2, has_factory=True),
    Job("torch_fsdp2", "fully_shard, meta, bf16, 2 ranks", ("torch",), ranks=2, has_factory=True),
    Job(
        "torch_tensor_parallel",
        "sequence parallel, loss parallel, 2 ranks",
        ("torch",),
        ranks=2,
        has_factory=True,
    ),
    Job("torch_zero1", "ZeroRedundancyOptimizer, 2 ranks", ("torch",), ranks=2),
    Job("bitsandbytes_adam8bit", "AdamW8bit", ("bitsandbytes",), has_factory=True),
    Job("peft_qlora", "QLoRA, NF4, double quantization", ("peft", "bitsandbytes"), has_factory=True),
    Job("deepspeed_zero1", "ZeRO-1, bf16, 2 ranks", ("deepspeed",), ranks=2),
    Job("deepspeed_zero2", "ZeRO-2, bf16, 2 ranks", ("deepspeed",), ranks=2),
    Job("deepspeed_zero3", "ZeRO-3, bf16, 2 ranks", ("deepspeed",), ranks=2),
    Job(
        "megatron_tensor",
        "tensor parallelism, 2 ranks",
        ("megatron-core",),
        ranks=2,
        needs_cuda=True,
        twin="megatron_pipeline",
    ),
    Job(
        "megatron_pipeline",
        "1F1B, 2 stages",
        ("megatron-core",),
        ranks=2,
        needs_cuda=True,
        twin="megatron_tensor",
    ),
    Job("torchtitan_llama", "FSDP2, FlexAttention, 2 ranks", ("torchtitan",), ranks=2, needs_cuda=True),
)
