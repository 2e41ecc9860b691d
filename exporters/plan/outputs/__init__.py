"""Plans as the files that training frameworks read: one module for each of them."""

from .deepspeed import encode_deepspeed
from .galvatron import encode_galvatron_2, encode_galvatron_3
from .megatron import encode_megatron
from .split import PipelineSplit, take_configuration, take_partition
from .torchtitan import encode_torchtitan

ENCODERS = {
    "galvatron_2.4_strategy.json": encode_galvatron_2,
    "galvatron_3.0_strategy.json": encode_galvatron_3,
    "megatron_arguments.txt": encode_megatron,
    "torchtitan.toml": encode_torchtitan,
    "deepspeed_parts.json": encode_deepspeed,
}
"""By the name of the file. Each raises `UsageError` where its framework cannot be told of a split."""

__all__ = [
    "ENCODERS",
    "PipelineSplit",
    "encode_deepspeed",
    "encode_galvatron_2",
    "encode_galvatron_3",
    "encode_megatron",
    "encode_torchtitan",
    "take_configuration",
    "take_partition",
]
