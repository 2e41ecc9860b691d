"""Whose a process is: container, pod of Kubernetes, job of Slurm; ids by control groups, names by what the
node has about them.
"""
