"""Artifacts about watched maps show labels as they are written."""

import html
from string import ascii_letters, punctuation

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.watch import _escape_markdown


@given(st.text(punctuation + ascii_letters + "0123456789é", min_size=1))
def test_escaped_text_is_shown_as_written(text):
    shown = MarkdownIt("gfm-like", {"linkify": False}).render(f"- {_escape_markdown(text)}")
    assert shown == f"<ul>\n<li>{html.escape(text, quote=False)}</li>\n</ul>\n".replace('"', "&quot;")
