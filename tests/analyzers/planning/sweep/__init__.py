"""Tests of sweeps over parallel layouts."""
