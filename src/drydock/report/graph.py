"""The frame of a run's picture: one plot over the training steps, as SVG and PNG."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from drydock.atomic import replace_file

INK = "#333333"


@contextmanager
def step_graph(title: str, quantity: str, svg: Path, png: Path) -> Iterator[Axes]:
    """Axes to draw on; on leaving without an error both files are written atomically, without a display.

    quantity: what is drawn over the steps, from 0 upwards.
    """
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    yield axes
    axes.set_title(title, color=INK, loc="left")
    axes.set_xlabel("training step")
    axes.set_ylabel(quantity)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="best")
    for file in (svg, png):
        with replace_file(file, durable=False) as temporary:
            figure.savefig(temporary, format=file.suffix[1:], metadata={"Date": None} if file is svg else None)
