"""The API objects: kinds, schemas, typed models, defaults and validation. No I/O."""
