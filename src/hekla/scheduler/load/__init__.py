"""How busy nodes really are: where it is read, how it is fetched, and how decisions see it."""
