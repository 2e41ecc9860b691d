"""What vramscope costs, measured with a peer in the same run on the same pretend driver."""
