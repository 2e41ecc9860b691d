"""How evenly memory is used over the nodes of a job."""
