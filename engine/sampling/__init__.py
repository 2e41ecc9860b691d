"""From readings to samples: the sampler thread, its watchdog, and the producers a hub publishes from."""
