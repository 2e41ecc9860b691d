"""A simulated server of a language model: its paged KV cache, its traffic, and what it reports over HTTP."""
