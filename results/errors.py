"""The one exception that reaches a user."""


class UserError(Exception):
    """One line a user can act on: what was wrong, where, and what to do. Commands print it without a traceback."""
