"""A receiver of webhooks with Python's standard library alone.

    AUDIENCE_WEBHOOK_SECRET=a-secret-of-the-test python3 receiver.py 3000
    audience-mock examine http://127.0.0.1:3000/hook --secret a-secret-of-the-test \
        --probe http://127.0.0.1:3000/count
"""
import hashlib, hmac, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["AUDIENCE_WEBHOOK_SECRET"].encode()
events, lock = {}, threading.Lock()  # in production, a table whose key is the event's id


def store(event):
    """Stores the id and the event in one step, for a worker that acts on it. With a database, this is one INSERT."""
    with lock:  # a duplicate waits until the first delivery is stored
        events.setdefault(event["id"], event)


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds for each read: a proxy in front of this server should limit the whole request

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            return self.respond(411)  # this server reads no body that is sent in chunks
        if int(length) > 2 * 1024 * 1024:
            return self.respond(413)
        body = self.rfile.read(int(length))
        stamp = self.headers.get("webhook-timestamp", "")
        expected = hmac.new(SECRET, f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        signature, *others = self.headers.get_all("webhook-signature", [""])
        if others or not hmac.compare_digest(signature.encode(), expected.encode()):
            return self.respond(401)
        if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
            return self.respond(401)
        try:
            event = json.loads(body)
            is_event = isinstance(event["id"], str) and isinstance(event["type"], str)
        except (ValueError, TypeError, KeyError):
            is_event = False
        if not is_event:
            return self.respond(400)
        store(event)  # if this fails, there is no response, and the service delivers the event again
        self.respond(200)

    def do_GET(self):  # GET /count?event=ID: the probe of the examination
        event = events.get(self.path.removeprefix("/count?event="))
        self.respond(200, {"count": 1, "type": event["type"]} if event else {"count": 0, "type": None})

    def respond(self, status, content=None):
        self.send_response(status)
        body = json.dumps(content).encode() if content else b""
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
