"""Runs the tests with pytest if it is installed, otherwise with the standard library."""

import importlib.util
import inspect
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent


def without_pytest():
    import fixtures
    import test_newsletter

    tests = inspect.getmembers(test_newsletter, inspect.isfunction)
    with fixtures.running_mock() as mock:

        def case(test):
            def run():
                with fixtures.running_newsletter(mock) as newsletter:
                    test(mock, newsletter)

            run.__name__ = test.__name__
            return unittest.FunctionTestCase(run)

        suite = unittest.TestSuite(case(test) for name, test in tests if name.startswith("test_"))
        return unittest.TextTestRunner(verbosity=2).run(suite)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    if importlib.util.find_spec("pytest"):
        import pytest

        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(HERE)]))
    sys.exit(not without_pytest().wasSuccessful())
