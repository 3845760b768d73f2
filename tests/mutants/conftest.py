import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of mutants and the checks that killed them."""
    rows = [dict(report.user_properties) for report in terminalreporter.getreports("passed")]
    rows = [row for row in rows if "mutant" in row]
    if not rows:
        return
    terminalreporter.section("mutants and the checks that kill them")
    width = max(len(row["mutant"]) for row in rows)
    for row in rows:
        terminalreporter.write_line(f"{row['mutant']:{width}}  {row['killed_by']}")
