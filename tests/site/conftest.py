"""A server and a browser for the tests of the built pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from serve import SITE
from site_kit import NARROW, WIDE, Visit, built_pages, running_browser, served, settle
from xdist.scheduler import LoadScopeScheduling


class ByPage(LoadScopeScheduling):
    """With several workers, one does all tests of a page, and one those of a module.

    The groups of `xdist` 3.8 cannot: pytest 9.2 does not see the names that it adds.
    """

    def _split_scope(self, nodeid: str) -> str:
        page = re.search(r"\[((?:book|notebooks)/[^\]]+?\.html)", nodeid)
        return page[1] if page else nodeid.split("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPage:
    return ByPage(config, log)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site."""
    if not (SITE / "index.html").exists():
        pytest.fail("there is no built book: type `make html` first", pytrace=False)
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    yield from served(site)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one the tests fail and say what to install."""
    yield from running_browser()


@pytest.fixture(scope="session")
def open_page(browser: Any, address: str) -> Iterator[Callable[..., Visit]]:
    """Open a page with every request to another server blocked and noted.

    `address` may be that of another server that a test has started.
    """
    contexts = []

    def open_(
        name: str,
        viewport: dict[str, int] = WIDE,
        address: str = address,
        **options: Any,
    ) -> Visit:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        visit = Visit(page, name)

        def route(route: Any) -> None:
            url = route.request.url
            if url.startswith(address):
                visit.files.add(url.partition("?")[0])
                route.continue_()
            elif url.startswith(("data:", "blob:")):
                route.continue_()
            else:
                visit.foreign.append(url)
                route.abort()

        def answered(response: Any) -> None:
            if response.status >= 400:
                visit.missing.append(f"{response.status} {response.url}")

        def spoke(message: Any) -> None:
            if message.type == "error":
                visit.errors.append(message.text)

        context.route("**/*", route)
        page.on("response", answered)
        page.on("console", spoke)
        page.on("pageerror", lambda error: visit.errors.append(str(error)))
        page.goto(address + quote(name, safe="/?=&"))
        settle(page)
        return visit

    yield open_
    for context in contexts:
        context.close()


def page_of(
    request: Any, open_page: Callable[..., Visit], viewport: dict[str, int] = WIDE
) -> Iterator[Visit]:
    """The page that a module of tests calls `PAGE`; nothing may go wrong on it."""
    opened = open_page(request.module.PAGE, viewport)
    yield opened
    opened.check_quiet()
    opened.page.close()


@pytest.fixture(scope="module")
def chapter(request: Any, open_page: Callable[..., Visit]) -> Iterator[Visit]:
    """The page called `PAGE`, opened once for all tests of the module."""
    yield from page_of(request, open_page)


@pytest.fixture
def fresh(request: Any, open_page: Callable[..., Visit]) -> Iterator[Visit]:
    """The same page for one test alone, before anything on it was touched."""
    yield from page_of(request, open_page)


@pytest.fixture
def telephone(request: Any, open_page: Callable[..., Visit]) -> Iterator[Visit]:
    """The same page for one test, on a screen as narrow as a telephone's."""
    yield from page_of(request, open_page, NARROW)


@pytest.fixture(scope="session", params=built_pages())
def each_page(request: Any, open_page: Callable[..., Visit]) -> Iterator[Visit]:
    """Each page of the book, opened once for all tests that look at every page."""
    opened = open_page(request.param)
    opened.page.wait_for_load_state("networkidle")
    yield opened
    opened.page.close()


@pytest.fixture
def visit(each_page: Visit) -> Visit:
    """The page on a wide screen, in light colours, whatever was done to it before."""
    each_page.look()
    return each_page


REPORTED = "site: "  # properties of tests that are told at the end


@pytest.fixture
def tell(record_property: Callable[[str, Any], None]) -> Callable[[str], None]:
    """Have a line told at the end of the tests, whether they pass or not."""
    return lambda line: record_property(REPORTED, line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        *terminalreporter.getreports("passed"),
        *terminalreporter.getreports("failed"),
    ]
    lines = {
        str(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == REPORTED
    }
    if lines:
        terminalreporter.section("the site")
        for line in sorted(lines):
            terminalreporter.write_line(line)
