"""Tests of vramscope, laid as the product is."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
