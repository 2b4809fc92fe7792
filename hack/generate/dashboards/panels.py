"""The kinds of panels that the dashboards are made of, and how each looks.

Each panel says in its description how to read it. Queries are PromQL with Grafana's variables in it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = Builder[dashboard.Panel]

SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${DS_PROMETHEUS}")
GRAPH, STAT, TABLE = 8, 4, 7
"""Heights in rows of Grafana's grid."""
WIDTH: Final = 24
"""Of the grid."""
JOB_UID: Final = "elasticjob-job"
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"


class Unit(enum.StrEnum):
    """How numbers are written: Grafana's names."""

    NUMBER = "short"
    RATIO = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    PER_SECOND = "cps"
    CORES = "none"
    WHOLE = "none"


@dataclass(frozen=True)
class Query:
    """An expression, and the name of each of its series: `{{label}}` stands for a label's value."""

    expr: str
    legend: str


Steps = Mapping[float, str]
"""From which value on a number has which colour; below the first it is green."""


def graph(
    title: str,
    about: str,
    *queries: Query,
    unit: Unit = Unit.NUMBER,
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
    for letter, query in zip(_letters(), queries, strict=False):
        panel = panel.with_target(_target(query, letter).range())
    return panel


def number(
    title: str,
    about: str,
    expr: str,
    unit: Unit = Unit.NUMBER,
    *,
    steps: Steps | None = None,
    base: str = GREEN,
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
    return panel.with_target(_target(Query(expr, title), "A").range())


@dataclass(frozen=True)
class Column:
    """A column of a table: what its queries' values are called and how they are written."""

    name: str
    expr: str
    unit: Unit = Unit.NUMBER


def jobs_table(title: str, about: str, *columns: Column) -> Panel:
    """Return a table with a row for each job, whose name leads to the dashboard of that job.

    The expression of each column has the labels namespace and job, and no others.
    """
    names = {f"Value #{letter}": column.name for letter, column in zip(_letters(), columns, strict=False)}
    order = {name: place for place, name in enumerate(("namespace", "job", *names))}
    link = {
        "title": "This job",
        "url": f"/d/{JOB_UID}?var-namespace=${{__data.fields.namespace}}&var-job=${{__data.fields.job}}"
        "&${__url_time_range}&var-DS_PROMETHEUS=${DS_PROMETHEUS}",
    }
    panel = table.Panel().title(title).description(about).datasource(SOURCE).height(TABLE).span(WIDTH)
    for letter, column in zip(_letters(), columns, strict=False):
        query = _target(Query(column.expr, column.name), letter).instant()
        panel = panel.with_target(query.format(PromQueryFormat.TABLE))
        panel = panel.override_by_name(
            column.name, [dashboard.DynamicConfigValue(id_val="unit", value=column.unit)]
        )
    panel = panel.override_by_name("job", [dashboard.DynamicConfigValue(id_val="links", value=[link])])
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organized))


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter)


def _letters() -> Iterator[str]:
    return iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class Row:
    """A headline and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """A dashboard: its file's name, its headline, what it answers, its variables and rows."""

    name: str
    title: str
    about: str
    variables: tuple[Builder[dashboard.VariableModel], ...]
    rows: tuple[Row, ...]

    def build(self) -> dashboard.Dashboard:
        """Return Grafana's model of it."""
        built = (
            builders.Dashboard(f"elasticjob / {self.title}")
            .uid(f"elasticjob-{self.name}")
            .description(self.about)
            .tags(["elasticjob"])
            .timezone("browser")
            .readonly()
            .time("now-1h", "now")
            .refresh("30s")
            .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
            .link(
                builders.DashboardLink("elasticjob")
                .type(dashboard.DashboardLinkType.DASHBOARDS)
                .tags(["elasticjob"])
                .as_dropdown(True)
                .keep_time(True)
            )
            .with_variable(
                builders.DatasourceVariable("DS_PROMETHEUS").label("Prometheus").type("prometheus")
            )
        )
        for variable in self.variables:
            built = built.with_variable(variable)
        for row in self.rows:
            built = built.with_row(builders.Row(row.title))
            for panel in row.panels:
                built = built.with_panel(panel)
        made = built.build()
        for number_, each in enumerate(made.panels or (), 1):
            each.id_val = number_
        return made


def choice(name: str, label: str, query: str, *, several: bool = False) -> Builder[dashboard.VariableModel]:
    """Return a variable whose values Prometheus knows; with `several` any number of them, at first all."""
    variable = builders.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    variable = variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable = variable.sort(dashboard.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    if several:
        everything = dashboard.VariableOption(text="All", value="$__all")
        variable = variable.multi(True).include_all(True).all_value(".*").current(everything)
    return variable
