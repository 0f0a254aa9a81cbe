"""From a task to nodes: filters, capacity, scores, and placing many equal tasks at once."""
