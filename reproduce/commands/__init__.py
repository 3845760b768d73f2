"""The commands of `amago-bench`, one file a subject. They import what they use when they run: `--help` stays fast."""
