"""A partition as JSON, in the shapes of llm_parallel_strategy's two files; MB in their keys is MiB."""

import json

from ...analyzers.planning.partition import PartitionResult


def encode_partition(result: PartitionResult) -> bytes:
    """Return what `best_partition_strategy.json` holds."""
    return json.dumps(result.to_dict(), indent=2).encode()


def encode_pipeline_config(model: str, result: PartitionResult) -> bytes:
    """Return what `pipeline_parallel_config.json` holds."""
    content = {
        "model_name": model,
        "total_stages": result.total_stages,
        "strategy": result.strategy,
        "balance_score": result.balance_score,
        "max_memory_per_stage": result.max_memory_usage,
        "stages": [
            {
                "stage_id": stage.partition_id,
                "layer_range": [stage.start_layer, stage.end_layer],
                "memory_mb": stage.total_memory_mb,
                "parameters": stage.total_parameters,
                "compute_gflops": stage.total_compute_gflops,
            }
            for stage in result.partitions
        ],
    }
    return json.dumps(content, indent=2).encode()
