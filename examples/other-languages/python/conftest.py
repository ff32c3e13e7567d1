"""The fixtures for pytest."""

import pytest

import fixtures


@pytest.fixture(scope="session")
def mock():
    with fixtures.running_mock() as mock:
        yield mock


@pytest.fixture
def newsletter(mock):
    with fixtures.running_newsletter(mock) as newsletter:
        yield newsletter
