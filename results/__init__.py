"""The tables: their schema, their store, the published numbers and the reference results. Standard library only."""
