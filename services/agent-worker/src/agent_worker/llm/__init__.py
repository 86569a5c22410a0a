"""Language models: one port, a file per kind of provider, and the choice between them."""
