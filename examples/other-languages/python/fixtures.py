"""What the tests start and stop. `conftest.py` makes pytest fixtures of these."""

import contextlib
import json
import os
import pathlib
import subprocess
import urllib.request

from newsletter import Newsletter, serve_webhooks

PROGRAM = os.environ.get("AUDIENCE_MOCK_PROGRAM", "audience-mock")
SEED = pathlib.Path(__file__).parent.parent / "seed.json"
FULL_KEY = json.loads(SEED.read_text())["keys"]["full"]
SECRET = "a-secret-of-the-test"


class Mock:
    """A running mock, and its control plane."""

    def __init__(self, url):
        self.url = url

    def control(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/_mock/{path}", data, headers, method=method)
        # A move of the clock waits up to 10 s for each attempt at a receiver that hangs.
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.loads(response.read() or "null")

    def contact(self, address):
        return self.control("GET", f"contacts/{address}")

    def wait_for_deliveries(self):
        """Returns when everything that is due has been delivered once."""
        self.control("POST", "clock", {"advance": 0})


@contextlib.contextmanager
def running_mock():
    """Starts a mock with the seed on a free port, and stops it at the end."""
    command = [PROGRAM, "--port", "0", "--signing-clock", "wall", "--seed", str(SEED)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        first_line = process.stdout.readline()
        if not first_line.startswith("listening on "):
            raise RuntimeError(f"{PROGRAM} did not start")
        yield Mock(first_line.removeprefix("listening on ").strip())
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


@contextlib.contextmanager
def running_newsletter(mock):
    """Resets the mock, and starts the application with its webhook handler as an endpoint."""
    mock.control("POST", "reset")
    newsletter = Newsletter(mock.url, FULL_KEY, wait=lambda seconds: None)
    server = serve_webhooks(newsletter, SECRET)
    url = f"http://127.0.0.1:{server.server_port}/hook"
    mock.control("PUT", "endpoints/newsletter", {"url": url, "secret": SECRET})
    try:
        yield newsletter
    finally:
        server.shutdown()
        server.server_close()
