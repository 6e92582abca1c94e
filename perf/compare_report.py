# SPDX-License-Identifier: Apache-2.0
"""Figures of compare_mpi.py: ratios, spreads, summaries and their tables. Pure functions.

Samples are {(name, bytes): [microseconds of each round]}. A ratio is a time of a peer over ours:
above 1 Tutti is faster. The best peer of a size is the one with the least median.
"""
import statistics

TUTTI, REGISTERED, LINE = "tutti", "tutti-registered", "line"
OWN = (TUTTI, REGISTERED)
# Smaller messages are bounded by the line exchange, others by streams. Registered buffers are
# measured from there on.
STREAM_BYTES = 64 * 1024


def spread(values):
    """The median of the values, and how far they lie apart."""
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else None
    return {"median": statistics.median(values), "least": min(values),
            "lower_quartile": quartiles[0] if quartiles else values[0],
            "upper_quartile": quartiles[2] if quartiles else values[0], "greatest": max(values)}


def best_of(names, bytes_, samples):
    """The name with the least median, or None without names."""
    return min(names, key=lambda name: statistics.median(samples[name, bytes_]), default=None)


def ratio_of(samples, peer, own, bytes_):
    """The ratio of medians, and the spread of the ratios of single rounds."""
    theirs, ours = samples[peer, bytes_], samples[own, bytes_]
    return {"ratio": statistics.median(theirs) / statistics.median(ours),
            "rounds": spread([a / b for a, b in zip(theirs, ours, strict=True)])}


def limits_of(bytes_, samples, streams):
    """How far our times are from the physical limits; `streams` are labels of their samples."""
    found = {}
    own = {name: statistics.median(samples[name, bytes_]) for name in OWN
           if (name, bytes_) in samples}
    if (LINE, 0) in samples:
        line_us = statistics.median(samples[LINE, 0])
        found["line_us"], found["lines"] = line_us, own[TUTTI] / line_us
        found["lines_rounds"] = spread([time / line for time, line in zip(
            samples[TUTTI, bytes_], samples[LINE, 0], strict=True)])
    for label in streams:
        if (label, bytes_) in samples:
            time_us = statistics.median(samples[label, bytes_])
            found.setdefault("streams", {})[label] = {
                "time_us": time_us, "share": {name: time_us / each for name, each in own.items()}}
    return found


def row_of(bytes_, names, samples, streams):
    peers = [name for name in names if name not in OWN]
    row = {"bytes": bytes_,
           "times_us": {name: spread(samples[name, bytes_]) for name in names
                        if (name, bytes_) in samples},
           "limits": limits_of(bytes_, samples, streams)}
    best = best_of(peers, bytes_, samples)
    if best:
        row["best_peer"] = best
        row["best"] = {own: ratio_of(samples, best, own, bytes_) for own in OWN
                       if (own, bytes_) in samples}
        row["peers"] = {peer: ratio_of(samples, peer, TUTTI, bytes_) for peer in peers}
    return row


def summary_of(rows, own):
    """Over all sizes that `own` has been measured at; None where there are none, or no peer."""
    measured = [(row["best"][own]["ratio"], row["bytes"]) for row in rows
                if own in row.get("best", {})]
    if not measured:
        return None
    least, at = min(measured)
    return {"geometric_mean": statistics.geometric_mean([ratio for ratio, _ in measured]),
            "least": least, "least_at_bytes": at, "slower": sum(r < 1 for r, _ in measured),
            "sizes": len(measured)}


def result_of(collective, sizes, names, samples, streams=()):
    """A collective's entry in the JSON file. `names` begins with ours."""
    rows = [row_of(size, names, samples, streams) for size in sizes]
    return {"collective": collective, "libraries": list(names),
            "summary": {own: summary_of(rows, own) for own in OWN}, "sizes": rows}


def limit_text(row):
    limits = row["limits"]
    if row["bytes"] < STREAM_BYTES:
        return f"{limits['lines']:.1f} x line" if "lines" in limits else "-"
    shares = [f"{label} " + "|".join(f"{share:.0%}" for share in stream["share"].values())
              for label, stream in limits.get("streams", {}).items()]
    return ", ".join(shares) or "-"


def best_text(row, own):
    if own not in row.get("best", {}):
        return "-"
    best = row["best"][own]
    rounds = best["rounds"]
    return f"{best['ratio']:.2f} [{rounds['least']:.2f}..{rounds['greatest']:.2f}]"


def aligned(lines):
    """Rows of cells as lines, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]


def table_lines(result):
    """Times in microseconds, and the best peer's over ours with [least..greatest] of the rounds."""
    names = result["libraries"]
    owns = [name for name in OWN if name in names]
    peers = [name for name in names if name not in OWN]
    lines = [["bytes", *names, *(["best peer", *(f"best/{own}" for own in owns)] if peers else []),
              "limit"]]
    for row in result["sizes"]:
        times = [f"{row['times_us'][name]['median']:.3f}" if name in row["times_us"] else "-"
                 for name in names]
        ratios = [row["best_peer"], *(best_text(row, own) for own in owns)] if peers else []
        lines.append([str(row["bytes"]), *times, *ratios, limit_text(row)])
    return aligned(lines) + [
        f"# geometric mean of {peer}/tutti: "
        f"{statistics.geometric_mean([row['peers'][peer]['ratio'] for row in result['sizes']]):.2f}"
        for peer in peers]


def summary_lines(results):
    """A line for each collective: the best peer at each size over ours."""
    lines = [["collective", "ours", "geometric mean", "least", "at bytes", "slower at"]]
    for result in results:
        for own, summary in result["summary"].items():
            if summary:
                lines.append([result["collective"], own, f"{summary['geometric_mean']:.2f}",
                              f"{summary['least']:.2f}", str(summary["least_at_bytes"]),
                              f"{summary['slower']} of {summary['sizes']} sizes"])
    return aligned(lines) if len(lines) > 1 else []
