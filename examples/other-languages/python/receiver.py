"""A receiver of webhooks with Python's standard library alone.

    AUDIENCE_WEBHOOK_SECRET=a-secret-of-the-test python3 receiver.py 3000
    audience-mock examine http://127.0.0.1:3000/hook --secret a-secret-of-the-test \
        --probe http://127.0.0.1:3000/count
"""
import hashlib, hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["AUDIENCE_WEBHOOK_SECRET"].encode()
seen, acted = {}, []  # in production, a table whose key is the event's id


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            return self.respond(411)  # this server reads no body that is sent in chunks
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
            event_id, _ = event["id"], event["type"]
        except (ValueError, TypeError, KeyError):
            return self.respond(400)
        if seen.setdefault(event_id, event) is event:  # atomic: one of many threads is the first
            acted.append(event)  # put the event into a queue here
        self.respond(200)

    def do_GET(self):  # GET /count?event=ID: the probe of the examination
        of_id = [event["type"] for event in acted if self.path == f"/count?event={event['id']}"]
        self.respond(200, {"count": len(of_id), "type": (of_id or [None])[0]})

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
