# SPDX-License-Identifier: Apache-2.0
"""The plot of compare_mpi.py: the best peer's time over ours against size, one part for each
collective, with the rounds' quartiles as a band. Needs python3-matplotlib, as perf_page.py does."""
import io

import perf_page
from compare_report import OWN

COLUMNS, INCHES, MOST_TICKS = 3, (4.2, 3.0), 6


def curve(result, own):
    """[(bytes, ratio, lower quartile, upper quartile)] where `own` has been measured."""
    return [(row["bytes"], best["ratio"], best["rounds"]["lower_quartile"],
             best["rounds"]["upper_quartile"])
            for row in result["sizes"] if (best := row.get("best", {}).get(own))]


def draw(axes, result):
    for own, style in zip(OWN, ("o-", "s--"), strict=True):
        points = curve(result, own)
        if points:
            sizes, ratios, lower, upper = zip(*points)
            axes.plot(sizes, ratios, style, label=own, markersize=3)
            axes.fill_between(sizes, lower, upper, alpha=0.25)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xlabel="size", ylabel="best peer / ours", title=result["collective"])
    sizes = [row["bytes"] for row in result["sizes"]]
    shown = sizes[::-(-len(sizes) // MOST_TICKS)]
    axes.set_xticks(shown, [perf_page.size_text(size) for size in shown], fontsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def svg(report):
    """An SVG document; ImportError with one line without matplotlib."""
    pyplot = perf_page.plot_library()
    results = [result for result in report["results"] if curve(result, OWN[0])]
    rows = max(1, -(-len(results) // COLUMNS))
    columns = max(1, min(COLUMNS, len(results)))
    figure, parts = pyplot.subplots(rows, columns, squeeze=False,
                                    figsize=(INCHES[0] * columns, INCHES[1] * rows))
    for axes in parts.flat[len(results):]:
        axes.set_visible(False)
    for axes, result in zip(parts.flat, results):
        draw(axes, result)
    figure.suptitle(f"{report['processes']} processes on {report['host']}, {report['cpu']}, "
                    f"{report['rounds']} rounds; above 1: Tutti is faster", fontsize=9)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()
