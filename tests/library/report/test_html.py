"""Rendering of pages: templates, escaping, code in sentences, and figures as JSON."""

import json

import polars as pl
import pytest
from jinja2 import UndefinedError

from relmap.report import html as html_module
from relmap.report.figure import DARK, FONT, LIGHT, DrawnFigure
from relmap.report.html import figure_json, mark_code, render_page, template_environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("By default, `apply` uses <b>.", "By default, <code>apply</code> uses &lt;b&gt;."),
        ("`<i>` and `b`", "<code>&lt;i&gt;</code> and <code>b</code>"),
        ("one ` alone", "one ` alone"),
    ],
)
def test_text_between_backticks_is_code_and_everything_is_escaped(text, expected):
    assert mark_code(text) == expected


def test_a_figure_is_written_as_json_without_tags():
    rows = pl.DataFrame({"text": ["größer", "</script>"], "number": [1, None], "share": [0.5, 0.25], "is_true": True})
    figure = DrawnFigure(key="k", title="t", caption="c", rows=rows, spec={"mark": "<b>"})
    text = figure_json(figure)
    assert "<" not in text
    assert "größer" in text
    assert ": " not in text
    assert json.loads(text) == {
        "spec": {"mark": "<b>"},
        "csv": "text,number,share,is_true\ngrößer,1,0.5,true\n</script>,,0.25,true\n",
        "types": {"text": "string", "number": "number", "share": "number", "is_true": "string"},
    }


def test_templates_of_given_folders_come_first_and_escape_their_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(html_module, "vega_script", lambda: "<library>")
    (tmp_path / "map.html.jinja").write_text(
        "{{ name }}{{ vega }}{{ font }}{{ colors.light.ink }}{{ colors.dark.ink }}"
    )
    page = render_page("map.html.jinja", folders=(tmp_path,), name="<größer>")
    assert page == f"&lt;größer&gt;<library>{FONT.replace(chr(39), '&#39;')}{LIGHT['ink']}{DARK['ink']}"
    with pytest.raises(UndefinedError, match="name"):
        render_page("map.html.jinja", folders=(tmp_path,))


def test_lines_of_template_blocks_leave_no_blank_lines(tmp_path):
    (tmp_path / "page.jinja").write_text("a\n  {% if true %}\n  b\n  {% endif %}\nc{{ CONCEPTS['intervals'].title }}")
    template = template_environment(tmp_path).get_template("page.jinja")
    assert template.render() == "a\n  b\ncIntervals"


def test_a_variable_of_a_sentence_is_marked_as_code_by_a_template(tmp_path):
    (tmp_path / "page.jinja").write_text("{{ text | code }} {{ text }}")
    page = template_environment(tmp_path).get_template("page.jinja").render(text="`a` < b")
    assert page == "<code>a</code> &lt; b `a` &lt; b"
