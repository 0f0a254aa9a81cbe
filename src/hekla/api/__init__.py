"""What the objects are: kinds, schemas, typed models, defaults and rules. No I/O."""
