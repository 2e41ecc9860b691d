"""ZeRO-2 of DeepSpeed: bf16, clipping, an optimizer of PyTorch."""

from zero_stages import train

if __name__ == "__main__":
    train(2)
