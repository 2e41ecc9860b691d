"""Which flags of Megatron-LM an estimate counts, which change memory and are not counted, which do neither.

Every flag of one version of Megatron-LM is in one of three tables. One that is in none of them may take
memory or free it: it is named with the estimate, which then does not say that a run fits.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .flags import (
    ADAPTER_RANK,
    ASSUMED_TYPE,
    BERT,
    MICRO_BATCHES,
    NF4,
    NORMS,
    PLAIN_TRAINING,
    PURE,
    RECOMPUTE_EVERY,
    SINKS,
    STATES_DROPOUT,
    Effect,
    Flags,
    NotCounted,
)

# The version whose flags the tables have: `megatron/training/arguments.py`, the configurations whose fields
# are its flags, and the names that its log adds.
MEGATRON_COMMIT = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"

_COUNTED = """
    account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
    accumulate-allreduce-grads-in-fp32 add-bias-linear add-qkv-bias attention-backend attention-dropout
    bf16 bias-swiglu-fusion context-parallel-size create-attention-mask-in-dataloader
    cross-entropy-fusion-impl cross-entropy-loss-fusion data-parallel-sharding-strategy
    decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers decoder-num-layers
    defer-embedding-wgrad-compute deterministic-mode disable-bias-linear distribute-saved-activations
    encoder-num-layers exp-avg-dtype exp-avg-sq-dtype experimental-attention-variant
    expert-model-parallel-size expert-tensor-parallel-size ffn-hidden-size fp16 fp8 fp8-format fp8-hybrid
    fp8-param fp8-param-gather fp8-recipe global-batch-size grad-reduce-in-bf16
    gradient-accumulation-fusion group-query-attention hidden-dropout hidden-size hybrid-layer-pattern
    hybrid-override-pattern is-hybrid-model kv-channels kv-lora-rank linear-attention-freq
    main-grads-dtype main-params-dtype make-vocab-size-divisible-by max-position-embeddings
    micro-batch-size microbatch-group-size-per-virtual-pipeline-stage microbatch-group-size-per-vp-stage
    moe-expert-capacity-factor moe-ffn-hidden-size moe-grouped-gemm moe-layer-freq
    moe-pad-expert-input-to-capacity moe-router-topk moe-shared-expert-intermediate-size
    moe-token-dispatcher-type moe-use-legacy-grouped-gemm mtp-num-layers multi-latent-attention
    no-bias-swiglu-fusion no-create-attention-mask-in-dataloader no-gradient-accumulation-fusion
    no-position-embedding no-store-param-remainders normalization num-attention-heads
    num-distributed-optimizer-instances num-experts num-layers num-layers-per-virtual-pipeline-stage
    num-query-groups num-virtual-stages-per-pipeline-rank optimizer optimizer-cpu-offload
    optimizer-offload-fraction padded-vocab-size pipeline-model-parallel-layout
    pipeline-model-parallel-size position-embedding-type q-lora-rank qk-head-dim qk-layernorm
    qk-pos-emb-head-dim quick-geglu recompute-activations recompute-granularity recompute-method
    recompute-modules recompute-num-layers seq-length sequence-parallel spec store-param-remainders swiglu
    tensor-model-parallel-size tokenizer-type tp-comm-overlap transformer-impl
    untie-embeddings-and-output-weights use-custom-fsdp use-distributed-optimizer use-flash-attn
    use-megatron-fsdp use-precision-aware-optimizer use-rotary-position-embeddings use-torch-fsdp2
    v-head-dim virtual-pipeline-model-parallel-size vocab-size wgrad-deferral-limit world-size
"""
_OURS = {
    ADAPTER_RANK,
    ASSUMED_TYPE,
    BERT,
    MICRO_BATCHES,
    NF4,
    NORMS,
    PLAIN_TRAINING,
    PURE,
    RECOMPUTE_EVERY,
    SINKS,
    STATES_DROPOUT,
}
COUNTED = frozenset(_COUNTED.split()) | _OURS


class Rule(NamedTuple):
    """A flag that changes memory in a way that is not modelled."""

    flag: str
    feature: str
    effect: Effect
    # Values with which it changes nothing, besides those that turn a flag off.
    quiet: tuple[str, ...] = ()
    # Values with which alone it changes something; any if empty.
    only: tuple[str, ...] = ()
    # Whether it matters where it is turned off.
    is_inverse: bool = False
    # Flag with which it does not matter.
    unless: str = ""


_FP32 = ("fp32", "float32", "torch.float32")
# Of torchtitan, by section and name.
_OF_TORCHTITAN = (
    Rule("compile.enable", "a compiled model", "unknown"),
    Rule("training.enable-cpu-offload", "offloading to the host", "less"),
    Rule("training.dtype", "another number format", "unknown", quiet=("float32",)),
    Rule("training.mixed-precision-param", "another number format", "unknown", quiet=("bfloat16",)),
    Rule("training.mixed-precision-reduce", "another number format", "unknown", quiet=("float32",)),
    Rule("model.converters", "products in other number formats", "unknown"),
    Rule("optimizer.name", "an optimizer other than Adam", "unknown", quiet=("adam", "adamw")),
    Rule("optimizer.early-step-in-backward", "steps of the optimizer in the backward pass", "less"),
    Rule("parallelism.fsdp-reshard-after-forward", "weights that stay gathered", "more", only=("never",)),
    Rule(
        "parallelism.pipeline-parallel-schedule",
        "another pipeline schedule",
        "unknown",
        quiet=("1f1b", "interleaved1f1b"),
    ),
    Rule("parallelism.enable-async-tensor-parallel", "symmetric memory of TP", "more"),
    Rule("parallelism.disable-loss-parallel", "logits on every tensor rank", "more"),
    Rule(
        "activation-checkpoint.mode",
        "recomputation that the compiler chooses",
        "less",
        only=("memory_budget",),
    ),
)
NOT_COUNTED = (
    *_OF_TORCHTITAN,
    Rule("cpu-offloading", "offloading to the host", "less"),
    Rule("cpu-offloading-num-layers", "offloading to the host", "less"),
    Rule("fine-grained-activation-offloading", "offloading of activations", "less"),
    Rule("offload-modules", "offloading of activations", "less"),
    Rule("activation-offload-fraction", "offloading of activations", "less", quiet=("1.0", "1")),
    Rule("offload-optimizer-states", "offloading of the optimizer", "less"),
    Rule("enable-cuda-graph", "CUDA graphs", "more"),
    Rule("external-cuda-graph", "CUDA graphs", "more"),
    Rule("cuda-graph-impl", "CUDA graphs", "more"),
    Rule("optimizer-cuda-graph", "CUDA graphs", "more"),
    Rule("inference-dynamic-batching", "serving in the same process", "more"),
    Rule("perform-rl-step", "reinforcement learning", "more"),
    Rule("rl-offload-optimizer-during-inference", "reinforcement learning", "unknown"),
    Rule("export-kd-teacher-load", "a teacher model", "more"),
    Rule("kd-teacher-load", "a teacher model", "more"),
    Rule("teacher-load", "a teacher model", "more"),
    Rule("logits-load-dir", "logits of a teacher", "more"),
    Rule("vision-pretraining", "a vision tower", "more"),
    Rule("use-vision-backbone-fp8-arch", "a vision tower", "more"),
    Rule("biencoder-projection-dim", "a second encoder", "more"),
    Rule("use-nccl-ub", "buffers registered with NCCL", "more"),
    Rule("nccl-ub", "buffers registered with NCCL", "more"),
    Rule("symmetric-ar-type", "symmetric memory of TP", "more"),
    Rule("fp4-format", "fp4", "unknown"),
    Rule("fp4", "fp4", "unknown"),
    Rule("fp4-param-gather", "fp4", "unknown"),
    Rule("fp4-quantizer-factory", "numbers of another format", "unknown"),
    Rule("fp8-quantizer-factory", "numbers of another format", "unknown"),
    Rule("kitchen-config-file", "numbers of another format", "unknown"),
    Rule("kitchen-recipe-number", "numbers of another format", "unknown"),
    Rule("te-precision-config-file", "numbers of another format", "unknown"),
    Rule("first-last-layers-bf16", "layers in bf16 among those in fp8", "unknown"),
    Rule("fp8-output-proj", "a head in fp8", "unknown"),
    Rule("keep-fp8-transpose-cache", "copies of weights in fp8", "more"),
    Rule("reuse-grad-buf-for-mxfp8-param-ag", "one buffer for gradients and weights", "less"),
    Rule("fp32-residual-connection", "a residual stream in fp32", "more"),
    Rule("fp16-lm-cross-entropy", "logits in fp16", "less"),
    Rule("logit-dtype", "logits in fp32", "more", only=_FP32),
    Rule("output-logit-dtype", "logits in fp32", "more", only=_FP32),
    Rule("freeze-all-layers", "frozen layers", "less"),
    Rule(
        "optimizer",
        "an optimizer that is neither Adam, SGD nor Muon",
        "unknown",
        quiet=("adam", "adam8bit", "sgd", "muon", "dist_muon"),
    ),
    Rule("muon-scalar-optimizer", "Lion in place of Adam", "less", only=("lion",)),
    Rule("fsdp-double-buffer", "buffers of FSDP", "more"),
    Rule("megatron-fsdp-max-pool-double-buffer", "buffers of FSDP", "more"),
    Rule("megatron-fsdp-enable-fine-grained-param-gather", "gathering of parts of layers", "less"),
    Rule("megatron-fsdp-grad-comm-dtype", "number formats of FSDP", "unknown", quiet=("auto", *_FP32)),
    Rule("megatron-fsdp-main-grads-dtype", "number formats of FSDP", "unknown", quiet=("auto", *_FP32)),
    Rule("megatron-fsdp-main-params-dtype", "number formats of FSDP", "unknown", quiet=("auto", *_FP32)),
    Rule("outer-dp-sharding-strategy", "sharding over groups of data ranks", "less", quiet=("no_shard",)),
    Rule("enable-full-sharding-in-hsdp", "sharding over groups of data ranks", "less"),
    Rule("torch-fsdp2-no-reshard-after-forward", "weights that stay gathered", "more"),
    Rule("torch-fsdp2-reshard-after-forward", "weights that stay gathered", "more", is_inverse=True),
    Rule("tensor-parallel-num-weight-shards", "weights sharded further", "less", quiet=("1",)),
    Rule("expert-tensor-parallel-num-weight-shards", "weights sharded further", "less", quiet=("1",)),
    Rule("ddp-param-name-patterns-for-fp32-local-accumulation", "some gradients in fp32", "more"),
    Rule("ddp-reduce-scatter-with-fp32-accumulation", "gradients gathered for sums in fp32", "more"),
    Rule("delay-wgrad-compute", "gradients computed later", "more"),
    Rule("overlap-dispatch-backward-with-experts-wgrad", "gradients computed later", "more"),
    Rule("overlap-moe-expert-parallel-comm", "two micro-batches at a time", "more"),
    Rule("cp-comm-type", "keys and values gathered over CP", "more", only=("allgather",)),
    Rule("hybrid-context-parallel", "sequences of several lengths", "unknown"),
    Rule("max-seqlen-per-dp-cp-rank", "sequences of several lengths", "unknown"),
    Rule("sft", "sequences that are packed", "unknown"),
    Rule("enable-mhc-connections", "several residual streams", "more"),
    Rule("attention-output-gate", "a gate after attention", "more"),
    Rule("qk-l2-norm", "norms of queries and keys", "more"),
    Rule("softmax-type", "another softmax of attention", "unknown", quiet=("vanilla",)),
    Rule("position-embedding-type", "relative positions", "more", only=("relative",)),
    Rule("use-kitchen-attention", "another attention", "unknown"),
    Rule("batch-invariant-mode", "other kernels", "unknown"),
    Rule("use-transformer-engine-op-fuser", "other kernels", "unknown"),
    Rule("use-te-activation-func", "other kernels", "unknown"),
    Rule("use-grouped-gemm-for-dense-mlp", "other kernels", "unknown"),
    Rule("use-grouped-gemm-for-shared-expert", "other kernels", "unknown"),
    Rule("moe-use-grouped-tensor", "other kernels", "unknown"),
    Rule("disable-jit-fuser", "operations that are not fused", "more"),
    Rule("bias-gelu-fusion", "operations that are not fused", "more", is_inverse=True, unless="swiglu"),
    Rule("openai-gelu", "operations that are not fused", "more"),
    Rule("onnx-safe", "operations that are not fused", "more"),
    Rule("glu-linear-offset", "operations that are not fused", "more"),
    Rule("activation-func-clamp-value", "operations that are not fused", "more"),
    Rule("mlp-chunks-for-training", "an MLP in pieces", "less", quiet=("1",)),
    Rule("moe-token-dispatcher-type", "buffers of a dispatcher", "more", only=("flex",)),
    Rule("moe-enable-deepep", "buffers of a dispatcher", "more"),
    Rule("moe-ncclep-zero-copy", "buffers of a dispatcher", "more"),
    Rule("moe-dispatch-fwd-dtype", "tokens of experts in fewer bits", "less", quiet=("bf16", "bfloat16")),
    Rule("moe-expert-rank-capacity-factor", "a bound on the tokens of a rank", "less"),
    Rule("moe-latent-size", "experts of another width", "unknown"),
    Rule("moe-layer-recompute", "recompute of experts", "less"),
    Rule("moe-paged-stash", "activations of experts in pages", "unknown"),
    Rule("mtp-use-repeated-layer", "one layer for all predicted tokens", "less"),
    Rule("mtp-standalone", "predicted tokens in a stage of their own", "unknown"),
    Rule("mtp-hybrid-override-pattern", "other layers for predicted tokens", "unknown"),
    Rule("heterogeneous-layers-config-path", "layers of several sizes", "unknown"),
    Rule("heterogeneous-layers-config-encoded-json", "layers of several sizes", "unknown"),
    # Of `config.json`.
    Rule("quantization-config", "weights in another format", "unknown"),
    Rule("vision-config", "a vision tower", "more"),
    Rule("audio-config", "an audio encoder", "more"),
    Rule("use-checkpoint-args", "flags from a checkpoint", "unknown"),
    Rule("use-mp-args-from-checkpoint-args", "flags from a checkpoint", "unknown"),
    Rule("yaml-cfg", "flags from another file", "unknown"),
)

# Logging, data, checkpoints, learning rates, seeds, restarts, serving, and numbers of features named above.
_WITHOUT_INFLUENCE = """
    adam-beta1 adam-beta2 adam-eps add-position-embedding adlr-autoresume adlr-autoresume-interval
    align-grad-reduce align-param-gather allow-ambiguous-pad-tokens app-tag-run-name app-tag-run-version
    apply-layernorm-1p apply-query-key-layer-scaling apply-residual-connection-post-layernorm
    apply-rope-fusion apply-wd-to-qk-layernorm async-ckpt-cpu-priority async-ckpt-io-priority
    async-ckpt-use-cpu-shm async-save async-strategy attention-softmax-in-fp32 auto-detect-ckpt-format
    barrier-with-l1-time batch-invariant-backend batch-size bert-binary-head bert-embedder-type bert-load
    bert-no-binary-head bias-dropout-fusion biencoder-shared-query-context-model block-data-path
    cache-mla-latents calc-ft-timeouts calculate-per-token-loss chat-template check-for-large-grads
    check-for-nan-in-loss-and-grad check-for-spiky-loss check-weight-hash-across-dp-replicas-interval
    checkpoint-activations ckpt-assume-constant-structure ckpt-convert-format ckpt-convert-save
    ckpt-convert-update-legacy-dist-opt-format ckpt-drop-redundant-extra-state ckpt-format
    ckpt-fully-parallel-load ckpt-fully-parallel-load-exchange-algo
    ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-load-process-group
    ckpt-fully-parallel-save ckpt-fully-parallel-save-deprecated ckpt-fully-parallel-save-process-group
    ckpt-load-validate-sharding-integrity ckpt-pg-tensors-cache-create ckpt-pg-tensors-cache-path
    ckpt-step classes-fraction clip-grad clone-scatter-output-in-embedding config-logger-dir
    consumed-train-bins consumed-train-samples consumed-valid-samples
    cpu-offloading-retain-pinned-cpu-buffers create-all-gather-group cuda-graph-modules cuda-graph-scope
    cuda-graph-scope-deprecated cuda-graph-warmup-steps data-args-path data-cache-path
    data-parallel-random-init data-parallel-size data-path data-per-class-fraction data-sharding
    dataloader-defer-npy-index-mmap dataloader-fast-cache-load dataloader-inter-document-masking
    dataloader-type ddp-average-in-collective ddp-bucket-size ddp-num-buckets
    ddp-pad-buckets-for-high-nccl-busbw decode-only-cuda-graphs decoder-seq-length decoupled-lr
    decoupled-min-lr decrease-batch-size-if-needed delay-offload-until-cuda-graph
    delta-offload-bytes-across-pp-ranks deprecated-use-mcore-models dino-bottleneck-size
    dino-freeze-last-layer dino-head-hidden-size dino-local-crops-number dino-local-img-size
    dino-norm-last-layer dino-teacher-temp dino-warmup-teacher-temp dino-warmup-teacher-temp-epochs
    disable-bf16-reduced-precision-matmul disable-gloo-process-groups disable-mamba-mem-eff-path
    disable-msc disable-msc-deprecated disable-straggler-on-startup disable-symmetric-registration
    dist-ckpt-format dist-ckpt-format-deprecated dist-ckpt-optim-fully-reshardable
    dist-ckpt-save-pre-mcore-014 dist-ckpt-strictness dist-ckpt-workers
    distrib-optim-fully-reshardable-mem-efficient distributed-backend distributed-timeout-minutes
    distributed-timeout-seconds-after-init dsa-indexer-head-dim dsa-indexer-k-norm-epsilon
    dsa-indexer-k-norm-fp32 dsa-indexer-loss-coeff dsa-indexer-n-heads dsa-indexer-rope-interleaved
    dsa-indexer-rotate-activation dsa-indexer-scoring-relu dsa-indexer-skip-topk-offset dsa-indexer-topk
    dsa-indexer-topk-freq dsa-indexer-use-sparse-loss dsa-kernel-backend dump-param-to-param-group-map
    embedding-init-method-std embedding-path empty-unused-memory-level enable-chunked-prefill
    enable-experimental enable-ft-package enable-msc enable-one-logger encoder-seq-length end-weight-decay
    eod-mask-loss ep-overlap-early-attn-memory-release error-injection-rate error-injection-type
    eval-global-batch-size eval-interval eval-iters eval-micro-batch-size evidence-data-path
    exit-duration-in-mins exit-interval exit-on-missing-checkpoint exit-signal exit-signal-handler
    exit-signal-handler-for-dataloader exit-signal-handler-for-training fake-process-group
    fault-injector-delay-start-iteration fault-injector-fault-delay fault-injector-fault-probabilities
    fault-injector-fault-types fault-injector-mtti-seconds fault-injector-num-ranks
    fault-injector-offset-seconds fault-injector-ranks fault-injector-seed fim-data fim-eod-token
    fim-fragment-rate fim-middle-token fim-no-prefix fim-pad-token fim-prefix-token fim-rate
    fim-split-sample fim-spm-rate fim-suffix-token fine-grained-offloading-max-inflight-offloads finetune
    flash-attention-version flash-decode flight-recorder-dump-on-timeout flight-recorder-dump-path
    flight-recorder-extra-dump-on-exec flight-recorder-include-only-active
    flight-recorder-include-stack-trace flight-recorder-trace-buffer-size fp4-recipe fp8-amax-compute-algo
    fp8-amax-history-len fp8-interval fp8-margin fp8-wgrad fsdp-db-use-persist-buf-on-alloc-fail
    fsdp-manual-registration ft-num-warmup-iters full-validation fully-parallel-load fully-parallel-save
    fused-residual-rmsnorm gdp-cutedsl-kernel gdp-num-chunk-states-to-recompute gdp-num-householder
    gpu-sniff-test-interval gradient-reduce-div-fusion grpo-clamp-eps-lower grpo-clamp-eps-upper
    grpo-entropy-term-weight grpo-filter-groups-with-same-reward grpo-group-size grpo-iterations
    grpo-kl-beta grpo-prompts-per-step grpo-samples-per-iteration gtp-expert-remat-nccl-ub
    gtp-remat-nccl-ub gtp-remat-opt-in-modules gtp-remat-reduce-scatter-with-fp32-accumulation
    head-lr-mult hierarchical-context-parallel-sizes high-priority-a2a-comm-stream
    high-priority-stream-groups hysteresis ict-head-size ict-load img-h img-w indexer-batch-size
    indexer-log-interval inference-batch-times-seqlen-threshold inference-coordinator-port
    inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens inference-cuda-graph-scope
    inference-disable-ep-consensus inference-disable-triton-nvls-kernels
    inference-dynamic-batching-async-sched-mode inference-dynamic-batching-block-size
    inference-dynamic-batching-buffer-size-gb inference-dynamic-batching-cuda-graph-mixed-prefill-count
    inference-dynamic-batching-cuda-graph-sizing-distribution
    inference-dynamic-batching-enable-prefix-caching inference-dynamic-batching-logprobs-mode
    inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-max-requests
    inference-dynamic-batching-max-tokens inference-dynamic-batching-num-cuda-graphs
    inference-dynamic-batching-paused-buffer-size-gb inference-dynamic-batching-prefix-caching
    inference-dynamic-batching-prefix-caching-coordinator-policy
    inference-dynamic-batching-prefix-caching-eviction-policy
    inference-dynamic-batching-prefix-caching-mamba-gb
    inference-dynamic-batching-prefix-caching-routing-alpha inference-dynamic-batching-sampling-backend
    inference-dynamic-batching-track-generated-token-events
    inference-dynamic-batching-track-paused-request-events inference-dynamic-batching-unified-memory-level
    inference-fuse-tp-communication inference-grouped-gemm-backend inference-logging-step-interval
    inference-max-requests inference-max-seq-length inference-moe-disable-fused-quant-kernels
    inference-moe-token-dispatcher-type inference-rng-tracker inference-shards
    inference-text-gen-server-logging inference-use-synchronous-zmq-collectives inference-wandb-logging
    init-method-std init-method-xavier-uniform init-model-with-meta-device initial-loss-scale
    inprocess-active-world-size inprocess-barrier-timeout inprocess-completion-timeout
    inprocess-empty-cuda-cache inprocess-granularity inprocess-hard-timeout inprocess-heartbeat-interval
    inprocess-heartbeat-timeout inprocess-last-call-wait inprocess-max-iterations
    inprocess-monitor-process-interval inprocess-monitor-thread-interval
    inprocess-progress-watchdog-interval inprocess-restart inprocess-soft-timeout
    inprocess-termination-grace-time iter-per-epoch iterations-to-skip kitchen-attention-backend
    langrl-env-config layernorm-epsilon layernorm-zero-centered-gamma lazy-mpu-init linear-conv-kernel-dim
    linear-key-head-dim linear-num-key-heads linear-num-value-heads linear-value-head-dim lion-beta1
    lion-beta2 load load-main-params-from-ckpt local-rank log-device-memory-used log-energy log-interval
    log-loss-scale-to-tensorboard log-max-attention-logit log-memory-interval log-memory-to-tensorboard
    log-num-zeros-in-grad log-params-norm log-progress log-straggler log-throughput
    log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-world-size-to-tensorboard
    logging-level logits-load-decode-threads logits-load-ignore-errors logits-load-kd-loss-alpha
    logits-load-msc-prefetch-depth logits-load-prefetch-factor logits-save-dir logits-save-dtype
    logits-save-top-k logits-save-top-p logits-save-top-p-min-k loss-scale loss-scale-window lr
    lr-decay-iters lr-decay-samples lr-decay-steps lr-decay-style lr-warmup-fraction lr-warmup-init
    lr-warmup-iters lr-warmup-samples lr-warmup-steps lr-wsd-decay-iters lr-wsd-decay-samples
    lr-wsd-decay-style mamba-head-dim mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype
    mamba-num-groups mamba-num-heads mamba-state-dim mamba-training-ssm-states-dtype manual-gc
    manual-gc-eval manual-gc-interval mask-factor mask-prob mask-type masked-softmax-fusion
    max-tokens-to-oom megatron-fsdp-version memory-snapshot-path merge-file metadata-path
    mhc-init-gating-factor mhc-num-residual-streams mhc-recompute-layer-num mhc-sinkhorn-iterations
    mid-level-dataset-surplus min-loss-scale min-lr min-offloaded-tensor-size mla-down-proj-fusion
    mlp-chunks-for-prefill mmap-bin-files mock-data model-parallel-size moe-apply-probs-on-input
    moe-aux-loss-coeff moe-combine-bwd-dtype moe-deepep-num-sms moe-enable-routing-replay
    moe-flex-dispatcher-backend moe-flex-dispatcher-num-sms moe-hybridep-num-blocks-permute
    moe-hybridep-num-blocks-unpermute moe-hybridep-num-sms moe-hybridep-num-sms-preprocessing
    moe-hybridep-pad-uneven-dispatch-inputs moe-input-jitter-eps moe-mlp-glu-interleave-size
    moe-pad-experts-for-cuda-graph-inference moe-paged-stash-buffer-size-factor-cpu
    moe-paged-stash-buffer-size-factor-cuda moe-paged-stash-page-size moe-per-layer-logging
    moe-permute-fusion moe-permute-fusion-into-hybridep moe-router-bias-update-rate moe-router-dtype
    moe-router-enable-expert-bias moe-router-force-biased moe-router-force-load-balancing
    moe-router-fusion moe-router-group-topk moe-router-load-balancing-type moe-router-num-groups
    moe-router-padding-for-fp8 moe-router-padding-for-quantization moe-router-pre-softmax
    moe-router-quantile-balancing-ema moe-router-score-function moe-router-topk-scaling-factor
    moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits
    moe-routing-trace-dump-weights moe-routing-trace-max-training-iters moe-routing-trace-path
    moe-shared-expert-gate moe-shared-expert-glu-interleave-size moe-shared-expert-overlap
    moe-single-grouped-bias moe-single-grouped-weight moe-token-drop-policy moe-upcycling-granularity
    moe-use-upcycling moe-z-loss-coeff mrope-section mscale mscale-all-dim mtp-detach-heads mtp-hsm
    mtp-loss-scaling-factor multiple-validation-sets muon-coefficient-type muon-extra-scale-factor
    muon-fp32-matmul-prec muon-momentum muon-nesterov muon-no-split-qkv muon-num-ns-steps muon-scale-mode
    muon-split-qkv muon-tp-mode muon-use-syrk mup-attn-scale-power mup-base-head-dim mup-base-hidden-size
    mup-embedding-mult mup-output-mult mup-width-mult nccl-all-reduce-for-prefill
    nccl-communicator-config-path no-align-param-gather no-barrier-with-level-1-timing
    no-bias-dropout-fusion no-check-for-nan-in-loss-and-grad no-ckpt-fully-parallel-save no-data-sharding
    no-gradient-reduce-div-fusion no-initialization no-load-optim no-load-rng no-masked-softmax-fusion
    no-mmap-bin-files no-one-logger no-overlap-p2p-communication no-persist-layer-norm no-pin-cpu-grads
    no-pin-cpu-params no-rope-freq no-rope-fusion no-save-optim no-save-rng no-use-layer-wise-param-layout
    no-weight-decay-cond-type no-yarn-correction-range-round-to-int non-persistent-ckpt-type
    non-persistent-global-ckpt-dir non-persistent-local-ckpt-algo non-persistent-local-ckpt-dir
    non-persistent-save-interval norm-epsilon null-tokenizer-eod-id null-tokenizer-pad-id num-channels
    num-classes num-dataset-builder-threads num-layers-at-end-in-bf16 num-layers-at-start-in-bf16
    num-speculative-tokens num-workers nvtx-ranges object-storage-cache-path
    offset-sampling-seed-by-dp-rank one-logger-async one-logger-project one-logger-run-name otel-enabled
    otel-service-name otel-span-groups output-bert-embeddings overlap-cpu-optimizer-d2h-h2d
    overlap-grad-reduce overlap-p2p-comm overlap-p2p-comm-warmup-flush
    overlap-p2p-communication-warmup-flush overlap-param-gather overlap-param-gather-with-optimizer-step
    override-ckpt-iteration override-opt-param-scheduler pad-vocab-size params-dtype patch-dim
    per-dataset-sequences-path per-split-data-args-path perform-initialization persistent-save-interval
    phase-transition-iterations pin-cpu-grads pin-cpu-params pipeline-model-parallel-comm-backend
    pretrained-checkpoint profile profile-ranks profile-step-end profile-step-start
    pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra pytorch-profiler-collect-shapes
    qk-clip qk-clip-alpha qk-clip-threshold query-in-block-prob rampup-batch-size rank
    record-memory-history record-shapes refit-method relative-attention-max-distance
    relative-attention-num-buckets replication replication-factor replication-jump rerun-mode
    reset-attention-mask reset-position-ids result-rejected-tracker-filename
    retriever-report-topk-accuracies retriever-score-scaling rl-consumption-granularity
    rl-default-temperature rl-default-top-k rl-default-top-p rl-durable-rollout-bank rl-generation-lag
    rl-importance-sampling-truncation-coef rl-inference-expert-model-parallel-size
    rl-inference-expert-tensor-model-parallel-size rl-inference-logprobs-is-correction
    rl-inference-model-unified-memory-level rl-inference-parsers rl-inference-pipeline-model-parallel-size
    rl-inference-tensor-model-parallel-size rl-kv-cache-management-mode rl-max-inflight-requests
    rl-offload-inference-model-weights-when-idle rl-partial-rollouts rl-persist-cuda-graphs rl-profile
    rl-profile-dir rl-prompts-per-eval rl-rollout-bank-dir rl-rollout-bank-max-bytes
    rl-sequence-packing-algo rl-sequence-packing-max-sequences-per-bin rl-skip-bos-token
    rl-submission-granularity rl-training-cuda-graphs rl-use-sequence-packing rl-verify-model-weights-swap
    rope-scaling-factor rope-type rotary-base rotary-interleaved rotary-percent rotary-scaling-factor
    rotary-seq-len-interpolation-factor run-workload-inspector-server sample-rate save
    save-activations-interval save-dgrads-interval save-interval save-params-interval save-retain-interval
    save-tokenizer-assets save-tokens-per-expert-interval save-wgrads-interval seed
    sft-tokenizer-prompt-format sgd-momentum sharp-enabled-group short-seq-prob skip-train
    skipped-train-samples special-tokens split squared-relu start-eval-at-iter start-weight-decay
    step-batch-size-schedule straggler-ctrlr-port straggler-minmax-count strict-fsdp-dtensor-load
    suggested-communication-unit-size swin-backbone-type te-rng-tracker tensorboard-dir
    tensorboard-log-interval tensorboard-queue-size test-data-path test-mode tiktoken-num-special-tokens
    tiktoken-pattern timing-log-level timing-log-option titles-data-path
    tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast tokenizer-metadata tokenizer-model
    tokenizer-sentencepiece-ignore-extra-whitespaces tokenizer-sentencepiece-legacy
    tokenizer-special-tokens tp-comm-bootstrap-backend tp-comm-bulk-dgrad tp-comm-bulk-wgrad
    tp-comm-overlap-ag tp-comm-overlap-cfg tp-comm-overlap-rs tp-comm-overlap-rs-dgrad tp-comm-split-ag
    tp-comm-split-rs train-data-path train-iters train-samples train-sync-interval
    transformer-pipeline-model-parallel-size trust-remote-code use-checkpoint-opt-param-scheduler
    use-cpu-initialization use-dist-ckpt use-dist-ckpt-deprecated use-fused-weighted-squared-relu
    use-gigatoken use-gloo-process-groups use-layer-wise-distributed-optimizer use-layer-wise-param-layout
    use-legacy-static-engine use-mamba-mem-eff-path use-mcore-models use-mup use-nsys-profiler
    use-one-sent-docs use-persistent-ckpt-worker use-pytorch-profiler use-ring-exchange-p2p
    use-rope-scaling use-same-sampling-seed-across-dp-ranks use-sharp
    use-tokenizer-model-from-checkpoint-args use-torch-optimizer-for-cpu-offload use-tp-pp-dp-mapping
    valid-data-path validation-set-names variable-seq-lengths verify-integrity vision-backbone-type
    vision-pretraining-type vocab-extra-ids vocab-file wandb-entity wandb-exp-name wandb-project
    wandb-save-dir warmup wd-incr-steps weight-decay weight-decay-incr-style window-attn-skip-freq
    window-size wsd-decay-steps yarn-beta-fast yarn-beta-slow yarn-correction-range-round-to-int
    yarn-original-max-position-embeddings
"""
WITHOUT_INFLUENCE = frozenset(_WITHOUT_INFLUENCE.split())
_KNOWN = COUNTED | WITHOUT_INFLUENCE | {rule.flag for rule in NOT_COUNTED}
_UNKNOWN = "a flag that is not known"
_SEVERAL = {_UNKNOWN: "flags that are not known"}
# A list of all arguments, as a log has it, has these where a feature is off.
_OFF_WORDS = frozenset({"none", "no", "off", "[]", "0.0"})


def name_not_counted(found: Sequence[NotCounted]) -> str:
    """Return the features and their flags as words, each feature once."""
    flags: dict[str, list[str]] = {}
    for each in found:
        flags.setdefault(each.feature, []).append(each.flag)
    words = ((_SEVERAL.get(it, it) if len(names) > 1 else it, names) for it, names in flags.items())
    return ", ".join(f"{feature} ({', '.join(names)})" for feature, names in words)


# What an estimate counts, and the sizes of layers in pipeline stages do not: a stage has one rank there.
NOT_IN_STAGES = (
    Rule("tensor-model-parallel-size", "tensor parallelism", "less", quiet=("1",)),
    Rule("context-parallel-size", "context parallelism", "less", quiet=("1",)),
    Rule("expert-model-parallel-size", "expert parallelism", "less", quiet=("1",)),
    Rule("use-distributed-optimizer", "states sharded over data ranks", "less"),
    Rule("use-megatron-fsdp", "states sharded over data ranks", "less"),
    Rule("use-custom-fsdp", "states sharded over data ranks", "less"),
    Rule("use-torch-fsdp2", "states sharded over data ranks", "less"),
    Rule("recompute-granularity", "recomputation", "less"),
    Rule("recompute-activations", "recomputation", "less"),
    Rule("optimizer-cpu-offload", "offloading of the optimizer", "less"),
    Rule(
        "optimizer",
        "an optimizer other than Adam",
        "less",
        only=("adam8bit", "sgd", "muon", "dist_muon"),
    ),
    Rule("use-precision-aware-optimizer", "states in other number formats", "less"),
    Rule("grad-reduce-in-bf16", "states in other number formats", "less"),
    Rule("attention-backend", "attention that keeps its scores", "more", only=("unfused", "local")),
    Rule("transformer-impl", "attention that keeps its scores", "more", only=("local",)),
    Rule("fp16", "training in fp16", "unknown"),
    Rule("fp8", "products in fp8", "unknown"),
    Rule("fp8-format", "products in fp8", "unknown"),
    Rule("fp8-hybrid", "products in fp8", "unknown"),
    Rule("mtp-num-layers", "layers that predict further tokens", "more", quiet=("0",)),
)


def is_known(flag: str) -> bool:
    """Return whether a flag of Megatron-LM is in one of the tables, in its positive or negative form."""
    names = flag, flag.removeprefix("no-"), flag.removeprefix("disable-"), f"no-{flag}"
    return any(name in _KNOWN for name in (*names, f"add-{flag.removeprefix('disable-')}"))


def list_not_counted(flags: Flags, rules: Sequence[Rule] = NOT_COUNTED) -> tuple[NotCounted, ...]:
    """Return the flags that change memory in ways that are not modelled, each feature once.

    A flag that is in no table comes last: whether it changes memory is not known.
    """
    found: dict[str, NotCounted] = {}
    for rule in rules:
        if _is_met(rule, flags):
            found.setdefault(
                rule.feature, NotCounted(flag=rule.flag, feature=rule.feature, effect=rule.effect)
            )
    return (*found.values(), *_list_unknown(flags))


def _is_met(rule: Rule, flags: Flags) -> bool:
    if rule.unless and flags.is_on(rule.unless):
        return False
    if rule.is_inverse:
        return flags.is_off(rule.flag)
    if not flags.is_on(rule.flag) or flags.find_word(rule.flag, "") in _OFF_WORDS:
        return False
    words = {word.lower() for word in flags.find_words(rule.flag, ())}
    return bool(words & set(rule.only)) if rule.only else not words <= set(rule.quiet)


def _list_unknown(flags: Flags) -> Iterator[NotCounted]:
    for name in flags.names:
        if not is_known(name) and flags.is_on(name) and flags.find_word(name, "") not in _OFF_WORDS:
            yield NotCounted(flag=name, feature=_UNKNOWN, effect="unknown")
