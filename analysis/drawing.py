"""A drawing: a figure with the numbers it shows and its caption, and the files that they become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from results.store import replace_file

if TYPE_CHECKING:  # so that the registry of figures is light to import
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".csv", ".md")


@dataclass(frozen=True)
class Drawing:
    """What a figure function returns. `caption` is one paragraph of Markdown: a picture is not shown without it."""

    figure: Figure
    data: pd.DataFrame
    caption: str

    def save(self, folder: Path, name: str) -> None:
        """Writes the files of `paths`; call it inside `style.paper_style()`.

        They have no time stamp, so that the same tables produce the same bytes.
        """
        folder.mkdir(parents=True, exist_ok=True)
        png, pdf, csv, markdown = paths(folder, name)
        self.figure.savefig(png, bbox_inches="tight")
        self.figure.savefig(pdf, bbox_inches="tight", metadata={"CreationDate": None})
        replace_file(csv, self.data.to_csv(index=False, lineterminator="\n").encode())
        replace_file(markdown, f"{self.caption}\n".encode())


def paths(folder: Path, name: str) -> list[Path]:
    """The picture as PNG and PDF, its numbers as CSV, its caption as Markdown."""
    return [folder / f"{name}{suffix}" for suffix in SUFFIXES]
