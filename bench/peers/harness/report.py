"""Tables of results: for the terminal, and for the README between its markers."""

import json
import statistics

from harness.processes import Failure

# Other work may have this share of the machine before results are called into question.
CALM = 0.1

BEGIN, END = "<!-- results: begin (run.py table) -->", "<!-- results: end -->"

HEAD = (
    "load",
    "system",
    "commands/s",
    "spread",
    "p50 ms",
    "p99 ms",
    "CPU us a command, by server",
    "sum",
    "ours / theirs: commands/s",
    "p50",
    "CPU",
    "load average",
    "elsewhere",
    "remarks",
)
# The columns that hold no figures.
WORDS = ("load", "system", "remarks")


def table(results):
    """The rows of one scenario as Markdown: medians over the rounds."""
    rule = ("---" if name in WORDS else "--:" for name in HEAD)
    lines = [_markdown(HEAD), _markdown(rule)]
    ours = None
    for row in results["rows"]:
        summary = _summary(row["rounds"])
        if ours is None or ours["load"] != row["load"]:
            ours = {"load": row["load"], **summary}
            ratios = ("", "", "")
        else:
            ratios = tuple(_times(ours[key], summary[key]) for key in ("per_second", "p50_us", "cpu_us"))
        lines.append(_markdown(_cells(row, summary, ratios)))
    return "\n".join(lines)


def _cells(row, summary, ratios):
    return (
        row["load"],
        row["system"],
        f"{summary['per_second']:,.0f}",
        f"{summary['spread']:.0%}",
        f"{summary['p50_us'] / 1e3:.2f}",
        f"{summary['p99_us'] / 1e3:.2f}",
        " + ".join(_microseconds(value) for value in summary["servers_us"]),
        _microseconds(summary["cpu_us"]),
        *ratios,
        f"{summary['load_average']:.1f}",
        f"{summary['elsewhere']:.0%}",
        ", ".join(_remarks(row["rounds"])),
    )


def _remarks(rounds):
    """What a reader must know before believing a row."""
    errors = sum(figures["errors"] for figures in rounds)
    if errors:
        yield f"{errors} errors"
    limited = sum(figures.get("client_limited", False) for figures in rounds)
    if limited:
        yield f"the load generator was the limit in {limited} of {len(rounds)} rounds"


def _summary(rounds):
    """Medians over rounds; of the servers, the busiest first, whichever it was in each round."""
    rates = [figures["per_second"] for figures in rounds]
    summary = {
        key: statistics.median(figures[key] for figures in rounds)
        for key in ("per_second", "p50_us", "p99_us", "load_average", "elsewhere")
    }
    summary["spread"] = (max(rates) - min(rates)) / summary["per_second"]
    by_rank = zip(*(sorted(figures["cpu_us"].values(), reverse=True) for figures in rounds))
    summary["servers_us"] = [statistics.median(values) for values in by_rank]
    summary["cpu_us"] = statistics.median(sum(figures["cpu_us"].values()) for figures in rounds)
    return summary


def _times(ours, theirs):
    return f"{ours / theirs:.2f}x" if theirs else ""


def _microseconds(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _markdown(cells):
    return f"| {' | '.join(cells)} |"


def section(results):
    """One scenario for the README: what was measured, when and where, and the table."""
    machine, settings = results["machine"], results["settings"]
    return "\n".join(
        (
            f"### {results['title']} (`run.py {results['scenario']}`)",
            "",
            f"{results['measured']}, {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, "
            f"{machine['kernel']}. Medians of {settings['rounds']} rounds of {settings['window_s']:g} s after "
            f"{settings['warm_up_s']:g} s of warm-up; values of {settings['value_bytes']} bytes, "
            f"{settings['keys']:,} keys. {'; '.join(results['versions'])}.",
            "",
            *_warning(results),
            table(results),
            "",
        )
    )


def _warning(results):
    """What a reader must know before believing any row but for its CPU."""
    busiest = max(figures["elsewhere"] for row in results["rows"] for figures in row["rounds"])
    if busiest <= CALM:
        return ()
    return (
        f"**The machine was not calm**: in one of the rounds {busiest:.0%} of it was busy with something else. Rates "
        "and latencies, and their ratios, are then those of a fight for processors; CPU a command suffers least.",
        "",
    )


def store(results, directory):
    """Writes the results of one scenario."""
    directory.mkdir(exist_ok=True)
    (directory / f"{results['scenario']}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def write_readme(readme, directory, scenarios):
    """Writes the tables of all stored results into the README."""
    stored = [directory / f"{scenario.key}.json" for scenario in scenarios]
    sections = [section(json.loads(path.read_text(encoding="utf-8"))) for path in stored if path.exists()]
    head, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise Failure(f"{readme} lacks the markers of its results: {BEGIN} and {END}")
    readme.write_text(f"{head}{BEGIN}\n\n" + "\n".join(sections) + f"\n{END}{tail}", encoding="utf-8")
