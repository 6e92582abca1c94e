# SPDX-License-Identifier: Apache-2.0
"""The page of tutti_perf: its report as one HTML file that refers to nothing outside itself.

page() is pure. It needs python3-matplotlib and raises ImportError with one line without it.
"""
import html
import io
import re

STYLE = """
body { font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 0.1em 0.8em; text-align: right; }
tr:nth-child(even) { background: #f2f2f2; } svg { max-width: 100%; height: auto; }
"""
INCHES = (11, 3.6)
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def plot_library():
    try:
        import matplotlib
    except ImportError:
        raise ImportError("the plots need python3-matplotlib, which is missing") from None
    matplotlib.use("svg")
    # Text stays text, and a drawing of the same figures is the same.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tutti",
                                "font.family": "sans-serif"})
    from matplotlib import pyplot
    return pyplot


def size_text(bytes_):
    unit, name = next(pair for pair in UNITS if bytes_ >= pair[0])
    return f"{bytes_ / unit:.4g} {name}"


def series(result):
    """[(label, the figures of each size)]: Tutti's, and the best peer's where there is one."""
    rows = result["sizes"]
    found = [("Tutti", [row["tutti"] for row in rows])]
    if result["peers"]:
        label = " or ".join(result["peers"])
        found.append((f"the faster of {label}" if len(result["peers"]) > 1 else label,
                      [row[row["best_peer"]] for row in rows]))
    return found


def drawing(pyplot, result):
    """Time and bus bandwidth against size, as an SVG element."""
    sizes = [row["bytes"] for row in result["sizes"]]
    figure, (times, bandwidths) = pyplot.subplots(1, 2, figsize=INCHES)
    for label, points in series(result):
        times.plot(sizes, [point["time_us"] for point in points], marker="o", label=label)
        bandwidths.plot(sizes, [point["bus_bw"] for point in points], marker="o", label=label)
    times.set(xscale="log", yscale="log", xlabel="bytes", ylabel="time (us)")
    bandwidths.set(xscale="log", xlabel="bytes", ylabel="bus bandwidth (GB/s)")
    for axes in (times, bandwidths):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg")
    pyplot.close(figure)
    return element(text.getvalue(), result["collective"])


def element(document, name):
    """The SVG element of a document, for a place in HTML: without namespaces and metadata, and with
    names that no other drawing of the page has."""
    svg = document[document.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)


def table(result):
    peers = result["peers"]
    head = ["size", "Tutti us", "GB/s", *(f"{peer} us" for peer in peers),
            *(f"{peer} / Tutti" for peer in peers)]
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    for row in result["sizes"]:
        own = row["tutti"]
        cells = [size_text(row["bytes"]), f"{own['time_us']:.2f}", f"{own['bus_bw']:.2f}",
                 *(f"{row[peer]['time_us']:.2f}" for peer in peers),
                 *(f"{row[peer]['time_us'] / own['time_us']:.2f}" if own["time_us"] else "-"
                   for peer in peers)]
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    return "<table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table>"


def page(report):
    pyplot = plot_library()
    facts = (f"{report['version']}, {report['start_time']}, {report['host']}, "
             f"{report['cpus']} CPUs, {report['processes']} processes, {report['rounds']} rounds, "
             f"algorithm {report['algorithm']}")
    sections = "\n".join(
        f"<section id=\"{result['collective']}\">\n<h2>{result['collective']}</h2>\n"
        f"{drawing(pyplot, result)}\n{table(result)}\n</section>" for result in report["results"])
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>Tutti's collectives</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<h1>Tutti's collectives</h1>\n<p>{html.escape(facts)}.</p>\n"
            "<p>Medians over rounds; bus bandwidth as nccl-tests defines it. A ratio above 1: "
            f"Tutti is faster.</p>\n{sections}\n</body>\n</html>\n")
