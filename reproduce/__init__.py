"""The top: the command, the scripts, the claims, one entry per figure."""
