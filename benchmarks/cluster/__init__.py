"""A fleet over the real wire: many agents, one viewer in a terminal, and what it costs."""
