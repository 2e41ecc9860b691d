"""What can be done in a view of nodes besides looking: a part of the application each."""
