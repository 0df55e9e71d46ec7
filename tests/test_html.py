from html.parser import HTMLParser

from actiongap._html import table


class Cells(HTMLParser):
    """The texts of the cells of a table."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_everything_is_escaped():
    bad = "<script>alert('&')</script>"
    cells = Cells(table([(bad, 1)], [bad], title=bad, note=bad))
    assert "script" not in cells.tags
    assert cells.texts.count(bad) == 4


def test_a_table_needs_nothing_from_elsewhere_and_has_no_colors():
    text = table([(1, 2)], ["a", "b"], title="t", note="n")
    assert not any(word in text for word in ("http", "src=", "color", "background", "<style", "<script"))


def test_title_note_and_headings_are_optional():
    assert Cells(table([(1,)])).tags == ["div", "table", "tbody", "tr", "td"]
