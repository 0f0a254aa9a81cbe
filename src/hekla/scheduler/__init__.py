"""Where pods go, and why not: a pure core, and the service that feeds it and carries out its plans."""
