"""The commands of `amago-bench`, one file per subject. They import their needs when they run: `--help` stays fast."""
