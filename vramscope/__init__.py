"""vramscope: will this training job run out of GPU memory, when, why, and what should I do?"""

__version__ = "0.1.0"
