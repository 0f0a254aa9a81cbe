"""Where pods go, and why not: a pure core, and the service that carries out its plans."""
