"""Troubles of samples, each played to every analyzer."""
