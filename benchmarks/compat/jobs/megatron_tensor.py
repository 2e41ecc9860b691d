"""Tensor parallelism of Megatron-core on two ranks."""

from megatron_training import train

if __name__ == "__main__":
    train(tensor=2)
