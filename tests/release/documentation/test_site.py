# SPDX-License-Identifier: Apache-2.0
"""The site that `python -m release docs` builds: its pages, links, versions, search and layout."""

import shutil

import pytest

import tpu_estimator_embedding
from tests import browser

pytest.importorskip("sphinx", reason="pip install '.[docs]', as .ci/run does for these tests")

from release import links, site  # noqa: E402 (with what Sphinx brings)

VERSION = tpu_estimator_embedding.__version__
WIDTHS = [1280, 390]  # of a desktop's window, and of a telephone


@pytest.fixture(scope="module", name="built")
def site_with_an_earlier_version(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    earlier = directory / "0.9.0"
    earlier.mkdir()
    (earlier / "index.html").write_text("<!doctype html><title>0.9.0</title>")
    (earlier / "search.html").write_text("<!doctype html><title>Search</title>")
    site.build(directory)
    return directory


def test_pages_have_the_tables_and_names_that_are_read_from_the_package(built):
    assert "tensorflow.python.tpu" in (built / VERSION / "patches.html").read_text("utf-8")
    reference = (built / VERSION / "api.html").read_text("utf-8")
    assert "EmbeddingConfigSpec" in reference and "TPUEmbeddingLayer" in reference


def test_landing_page_has_a_chart_a_report_and_the_table_of_features(built):
    page = (built / VERSION / "index.html").read_text("utf-8")
    assert 'src="_images/benchmark.png"' in page
    assert 'src="_images/report.png"' in page
    assert "Front door" in page


def test_no_link_is_broken(built):
    assert links.broken(built) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "other.html").write_text('<p id="here">')
    (tmp_path / "page.html").write_text(
        '<a href="other.html#here"></a> <a href="other.html#there"></a> <a href="gone.html"></a>'
        '<img src="gone.png"> <a href="https://example.org/x"></a> <a href="#top"></a>')
    assert links.broken(tmp_path) == [
        "page.html: #top", "page.html: gone.html", "page.html: gone.png",
        "page.html: other.html#there"]


def test_nothing_scrolls_sideways_and_no_image_is_missing(built, tmp_path):
    pages = sorted(built.rglob("*.html"))
    layouts = browser.lay_out(pages, WIDTHS, tmp_path)
    assert len(layouts) == len(pages) * len(WIDTHS)
    faults = [layout for layout in layouts
              if layout.page_width > layout.width or layout.missing_images]
    assert faults == []


def test_layout_of_a_page_that_is_too_wide_is_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><div style="width: 500px">x</div><img src="gone.png">')
    wide, narrow = browser.lay_out([page], WIDTHS, tmp_path)
    assert wide.page_width == 1280 and narrow.page_width > 390
    assert len(wide.missing_images) == 1


def test_search_finds_pages_from_the_disk(built):
    address = (built / VERSION / "search.html").as_uri()
    found = browser.text_of(f"{address}?q=multiplier").partition('id="search-results"')[2]
    assert 'href="experiments.html"' in found


def test_pages_offer_every_version_of_the_site(built):
    page = browser.text_of((built / VERSION / "index.html").as_uri())
    assert f'<option value="{VERSION}">{VERSION}</option><option value="0.9.0">' in page


def test_site_leads_to_the_newest_version_that_is_final(built, tmp_path):
    copy = shutil.copytree(built, tmp_path / "site")
    assert 'content="0; url=0.9.0/index.html"' in (copy / "index.html").read_text("utf-8")
    (copy / "0.9.0" / "index.html").unlink()
    site.list_versions(copy, "/docs/")
    assert f'content="0; url={VERSION}/index.html"' in (copy / "index.html").read_text("utf-8")
    assert '<base href="/docs/">' in (copy / "404.html").read_text("utf-8")


def test_page_with_a_warning_is_an_error(monkeypatch, tmp_path):
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "conf.py").write_text("")
    (pages / "index.rst").write_text("Title\n=====\n\n:ref:`nowhere`\n")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    with pytest.raises(site.SiteError, match="undefined label: 'nowhere'"):
        site.build(tmp_path / "site")
    assert not (tmp_path / "site" / "index.html").exists()
