"""A hub of hubs: it follows nodes, and passes on what they say to viewers and to other relays."""
