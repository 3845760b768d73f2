"""Tasks that can only be solved by remembering."""
