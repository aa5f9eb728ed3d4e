"""The page of the traces and demonstrations: charts by caption, a table with and without a head, text escaped."""

from spillway.agents.pages import page


def written(tmp_path, **more):
    charts = {"A line & its end": lambda axes: axes.plot([0, 1], [1, 0])}
    page.write(tmp_path / "page.html", "One < two", charts, [["p99 & more", "3 ms"]], **more)
    return (tmp_path / "page.html").read_text("utf-8")


def test_a_page_has_its_charts_and_its_table_and_escapes_text(tmp_path):
    found = written(tmp_path, text="a > b", head=["", "with"])
    assert "One &lt; two" in found
    assert "a &gt; b" in found
    assert found.count("<svg") == 1
    assert "A line &amp; its end" in found
    assert found.count("<th>") == 2
    assert "<td>p99 &amp; more</td><td>3 ms</td>" in found


def test_a_table_without_a_head_has_rows_only(tmp_path):
    found = written(tmp_path)
    assert "<th>" not in found
    assert found.count("<tr>") == 1
