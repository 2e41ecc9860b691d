"""Training runs by phase: started in processes of their own, gathered from ranks."""
