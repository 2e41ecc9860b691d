"""A pipeline of Megatron-core with two stages, 1F1B."""

from megatron_training import train

if __name__ == "__main__":
    train(pipeline=2)
