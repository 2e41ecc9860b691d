"""What vramscope costs, measured beside a peer in the same run on the same pretend driver."""
