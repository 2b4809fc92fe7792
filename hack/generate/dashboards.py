"""The files of config/grafana, made of dashboards.yaml: the kinds of panels, and how each looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from lab.paths import ROOT

Panel = Builder[dashboard.Panel]
Described = Mapping[str, Any]
"""A part of dashboards.yaml."""

FOLDER: Final = ROOT / "config" / "grafana"
SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${DS_PROMETHEUS}")
GRAPH, STAT, TABLE = 8, 4, 7
"""Heights in rows of Grafana's grid."""
WIDTH: Final = 24
"""Of the grid."""
JOB_UID: Final = "elasticjob-job"


def outputs() -> Mapping[Path, Callable[[], str]]:
    """Return the dashboards' files: path → content."""
    boards = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    return {FOLDER / f"{name}.json": partial(text, name, board) for name, board in boards.items()}


def text(name: str, board: Described) -> str:
    """Return a dashboard as JSON, always the same."""
    return JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False).encode(built(name, board)) + "\n"


def built(name: str, board: Described) -> dashboard.Dashboard:
    """Return Grafana's model of a dashboard."""
    link = builders.DashboardLink("elasticjob").type(dashboard.DashboardLinkType.DASHBOARDS)
    result = (
        builders.Dashboard(f"elasticjob / {board['title']}")
        .uid(f"elasticjob-{name}")
        .description(board["about"])
        .tags(["elasticjob"])
        .timezone("browser")
        .readonly()
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(link.tags(["elasticjob"]).as_dropdown(True).keep_time(True))
        .with_variable(builders.DatasourceVariable("DS_PROMETHEUS").label("Prometheus").type("prometheus"))
    )
    for each in board["variables"]:
        result = result.with_variable(variable(**each))
    for title, panels in board["rows"].items():
        result = result.with_row(builders.Row(title))
        for each in panels:
            result = result.with_panel(panel(each, board["labels"]))
    model = result.build()
    for number_, each in enumerate(model.panels or (), 1):
        each.id_val = number_
    return model


def variable(name: str, label: str, query: str, several: bool = False) -> Builder[dashboard.VariableModel]:
    """Return a variable whose values Prometheus knows; with `several` any number of them, at first all."""
    made = builders.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    made = made.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    made = made.sort(dashboard.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    if several:
        everything = dashboard.VariableOption(text="All", value="$__all")
        made = made.multi(True).include_all(True).all_value(".*").current(everything)
    return made


def panel(described: Described, labels: Mapping[str, str]) -> Panel:
    """Return a panel, with the labels written out in its expressions."""

    def written(expr: str) -> str:
        for name, label in labels.items():
            expr = expr.replace(f"{{{name}", f"{{{label}")
        return expr

    of = described["of"]
    exprs = {legend: written(expr) for legend, expr in of.items()} if isinstance(of, dict) else written(of)
    (kind,) = KINDS.keys() & described.keys()
    made: Panel = KINDS[kind](described[kind], described["about"], exprs, **described.get("look", {}))
    return made


def graph(
    title: str,
    about: str,
    exprs: Mapping[str, str],
    unit: str = "short",
    stacked: bool = False,
    signed: bool = False,
    width: int = 8,
) -> Panel:
    """Return lines over time, or areas one upon another; the axis begins at 0 unless values are `signed`."""
    legend = looks.VizLegendOptions().show_legend(True)
    panel = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit)
    panel = panel.height(GRAPH).span(width).line_width(1).show_points(common.VisibilityMode.NEVER)
    panel = panel.legend(
        legend.display_mode(common.LegendDisplayMode.LIST).placement(common.LegendPlacement.BOTTOM)
    )
    panel = panel.tooltip(
        looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    if not signed:
        panel = panel.min(0)
    if stacked:
        panel = panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(40)
    for target in _targets(exprs):
        panel = panel.with_target(target.range())
    return panel


def number(
    title: str,
    about: str,
    expr: str,
    unit: str = "short",
    steps: Mapping[float, str] | None = None,
    base: str = "green",
    width: int = 4,
    height: int = STAT,
) -> Panel:
    """Return one large number, with its course behind it."""
    limits = [dashboard.Threshold(value=None, color=base)]
    limits += [dashboard.Threshold(value=value, color=colour) for value, colour in (steps or {}).items()]
    panel = stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).no_value("–")
    panel = panel.height(height).span(width).graph_mode(common.BigValueGraphMode.AREA)
    panel = panel.reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]))
    panel = panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)).thresholds(
        builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(limits)
    )
    (target,) = _targets({title: expr})
    return panel.with_target(target.range())


def jobs_table(title: str, about: str, exprs: Mapping[str, str], units: Mapping[str, str]) -> Panel:
    """Return a table with a row for each job, whose name leads to the dashboard of that job.

    The expression of each column has the labels namespace and job, and no others.
    """
    names = {f"Value #{letter}": name for letter, name in zip(LETTERS, exprs, strict=False)}
    order = {name: place for place, name in enumerate(("namespace", "job", *names))}
    link = {
        "title": "This job",
        "url": f"/d/{JOB_UID}?var-namespace=${{__data.fields.namespace}}&var-job=${{__data.fields.job}}"
        "&${__url_time_range}&var-DS_PROMETHEUS=${DS_PROMETHEUS}",
    }
    panel = table.Panel().title(title).description(about).datasource(SOURCE).height(TABLE).span(WIDTH)
    for name, target in zip(exprs, _targets(exprs), strict=True):
        panel = panel.with_target(target.instant().format(PromQueryFormat.TABLE))
        unit = dashboard.DynamicConfigValue(id_val="unit", value=units.get(name, "short"))
        panel = panel.override_by_name(name, [unit])
    panel = panel.override_by_name("job", [dashboard.DynamicConfigValue(id_val="links", value=[link])])
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organized))


def _targets(exprs: Mapping[str, str]) -> Iterator[prometheus.Dataquery]:
    for letter, (legend, expr) in zip(LETTERS, exprs.items(), strict=False):
        yield prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(letter)


LETTERS: Final = "ABCDEFGHIJ"
KINDS: Final[Mapping[str, Callable[..., Panel]]] = {"graph": graph, "number": number, "table": jobs_table}
