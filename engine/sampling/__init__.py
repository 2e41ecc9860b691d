"""From readings to samples: the sampler thread, its watchdog, and the producers of a hub."""
