"""The report: scales, the picture and the page, all from values."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.cli.report.page import Setting, asset, bands, page, picture
from elasticjob.cli.report.plot import Event, Figure, Panel, draw, label_width, place_labels, sparkline
from elasticjob.cli.report.scales import Scale, decades, round_values, rows, stairs, thin
from elasticjob.cli.report.spent import MEANINGS
from elasticjob.cli.story.acts import Act, Mark
from elasticjob.cli.story.runner import ActResult
from elasticjob.cli.story.seen import Message, Seen, has_succeeded
from elasticjob.cli.story.steps import Step
from elasticjob.cli.story.timeline import Result, tell
from elasticjob.master.progress.goodput import Cause

Spans = st.lists(st.tuples(st.floats(0, 1000), st.floats(1, 200)), max_size=20)


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [
        (0, 10, 5, (0, 2, 4, 6, 8, 10)),
        (0, 61, 10, (0, 10, 20, 30, 40, 50, 60)),
        (0.13, 0.31, 4, (0.15, 0.2, 0.25, 0.3)),
        (3, 3, 4, (3,)),
    ],
)
def test_ticks_are_round(low: float, high: float, about: int, expected: tuple[float, ...]) -> None:
    assert round_values(low, high, about) == expected


def test_decades_are_the_powers_of_ten_inside() -> None:
    assert decades(0.02, 30) == (0.1, 1.0, 10.0)


def test_scale_maps_its_ends_and_keeps_what_lies_outside_on_the_paper() -> None:
    scale = Scale((0, 10), (100, 200))
    assert [scale(value) for value in (-5, 0, 5, 10, 99)] == [100, 100, 150, 200, 200]
    assert Scale((0.01, 1), (0, 100), logarithmic=True)(0.1) == pytest.approx(50)
    assert Scale((1, 1), (0, 100))(1) == 50


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(1, 20))
def test_thinning_keeps_order_and_extremes_and_is_short(values: list[float], buckets: int) -> None:
    points = [(float(at), value) for at, value in enumerate(values)]
    kept = thin(points, buckets)
    assert list(kept) == sorted(kept)
    assert len(kept) <= max(2 * buckets, 0)
    if values:
        assert max(kept, key=lambda p: p[1])[1] == max(values)
        assert min(kept, key=lambda p: p[1])[1] == min(values)


@given(Spans)
def test_labels_in_one_row_never_overlap(spans: list[tuple[float, float]]) -> None:
    ordered = sorted((left, left + width) for left, width in spans)
    placed = list(zip(ordered, rows(ordered, 4.0), strict=True))
    for row in {row for _, row in placed}:
        mine = [span for span, its in placed if its == row]
        assert all(before[1] + 4.0 <= after[0] for before, after in itertools.pairwise(mine))


def test_stairs_hold_each_value_until_the_next() -> None:
    assert stairs([(0, 2), (5, 1)]) == ((0, 2), (5, 2), (5, 1))
    assert stairs([]) == ()


def test_labels_stay_on_the_paper() -> None:
    events = (Event(0, "SIGKILL a worker", "fault"), Event(60, "the very last act of all", "life"))
    time = Scale((0, 60), (60, 1060))
    for event, (left, _) in zip(events, place_labels(events, time), strict=True):
        assert left >= 0
        assert left + label_width(event.label) <= 1080


@pytest.mark.parametrize(
    ("values", "shown"), [((), ""), ((1.0,), "▁"), ((0.0, 1.0), "▁█"), ((3.0, 0.0, 1.0, 2.0), "▁▅█")]
)
def test_sparkline_shows_the_last_values(values: tuple[float, ...], shown: str) -> None:
    assert sparkline(values, 3) == shown


STEPS = tuple(
    Step(at=at, round=round_, step=step, world=world, loss=1 / step)
    for step, (at, round_, world) in enumerate(
        [(105 + n / 10, 1, 2) for n in range(20)]
        + [(107.2 + n / 10, 2, 1) for n in range(20)]
        + [(115 + n / 10, 3, 1) for n in range(20)],
        1,
    )
)


def result() -> Result:
    def played(title: str, mark: Mark, began: float, ended: float) -> ActResult:
        act = Act(title, mark, lambda s: s.wait(), has_succeeded, "")
        return ActResult(act, began, ended, f"did <{title}>", Seen(), Seen())

    story = [
        played("apply", Mark.LIFE, 100, 106),
        played("kill", Mark.FAULT, 106.9, 109),
        played("suspend", Mark.PAUSE, 109.05, 112),
        played("resume", Mark.PAUSE, 112, 118),
    ]
    said = [Message(107, "Lost", "a worker & its <pod>", warning=True)]
    return tell(story, STEPS, said, 0.975, {"productive": 30.0, "init": 6.0, "rendezvous": 4.0, "data": 0.01})


def test_bands_divide_a_suspension_into_what_was_asked_for_and_the_standstill() -> None:
    found = [(band.kind, round(band.began, 2), round(band.ended, 2)) for band in bands(result())]
    assert found == [("still", 6.9, 7.2), ("pause", 9.1, 12.0), ("still", 12.0, 15.0)]


def test_picture_shows_the_world_as_it_was_stepped_with_and_none_while_suspended() -> None:
    workers = picture(result()).panels[2]
    assert [(round(at, 1), size) for at, size in workers.points] == [
        (5.0, 2.0),
        (7.2, 1.0),
        (9.1, 0.0),
        (15.0, 1.0),
        (16.9, 1.0),
    ]


def test_drawing_is_well_formed_and_names_every_event() -> None:
    svg = draw(picture(result()), title="a <run>")
    root = ElementTree.fromstring(svg)
    shown = " ".join(text for text in root.itertext())
    assert all(name in shown for name in ("apply", "kill", "suspend", "resume", "loss", "workers", "a <run>"))
    assert "nan" not in svg


def test_figure_without_a_step_can_be_drawn() -> None:
    empty = Figure(10.0, (Panel("loss", "loss", "line", (), 100, logarithmic=True),))
    ElementTree.fromstring(draw(empty, title="nothing"))


class Links(HTMLParser):
    """Collects everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(value) for name, value in attrs if name in {"src", "href"}]


def test_page_needs_nothing_beside_itself() -> None:
    written = page(result(), Setting("digits", "kind: ElasticJob", {"python": "3.11"}))
    links = Links()
    links.feed(written)
    assert links.found == []
    assert "@import" not in written
    assert "url(" not in written


def test_page_tells_the_story_and_escapes_what_others_said() -> None:
    written = page(result(), Setting("digits", "name: <digits>", {"torch": "2.15"}))
    for expected in (
        "Succeeded after 60 steps, 97.5% accurate",
        "a worker &amp; its &lt;pod&gt;",
        "name: &lt;digits&gt;",
        "did &lt;kill&gt;",
        '<td class="number still">0.30 s</td>',
        "<td>2 → 1</td>",
        "<td>torch</td><td>2.15</td>",
    ):
        assert expected in written


def test_time_of_the_workers_is_a_bar_whose_parts_are_all_of_it() -> None:
    written = page(result(), Setting("digits", "", {}))
    widths = [float(width) for width in re.findall(r'style="width:([\d.]+)%"', written)]
    assert widths == [74.981, 14.996, 9.998]
    for expected in (
        'title="productive: 30.0 s, 75.0%"',
        '<b>init</b></td><td class="number">6.0 s</td><td class="number">15.0%</td>',
        "40 s in all, 75.0% productive",
    ):
        assert expected in written
    assert "<b>data</b>" not in written


def test_report_without_an_account_has_no_bar() -> None:
    assert "Where the time" not in page(replace(result(), account={}), Setting("digits", "", {}))


def test_every_cause_has_its_words_and_its_colour() -> None:
    assert list(MEANINGS) == list(Cause)
    style = asset("page.css")
    assert all(re.search(rf"\.{cause}[,{{]", style) for cause in Cause)


def test_readout_has_the_series_as_json() -> None:
    written = page(result(), Setting("digits", "", {}))
    found = re.search(r'id="series">(.*?)</script>', written, re.DOTALL)
    assert found
    assert [one["name"] for one in json.loads(found.group(1))] == ["loss", "steps per second", "workers"]
