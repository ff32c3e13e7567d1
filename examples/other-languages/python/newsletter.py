"""A newsletter: people sign up and confirm it, and whoever cannot be reached gets no further mail."""

import contextlib
import email.utils
import hashlib
import hmac
import http.client
import http.server
import json
import logging
import secrets
import socket
import threading
import time
import urllib.parse


TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
LONGEST_RESPONSE = 16 * 1024 * 1024  # bytes; the JSON of a longer one is cut, and so refused


class Refused(Exception):
    """The service refused a request. `status` is the HTTP status."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class Unusable(Exception):
    """A response that is not what the service sends: a gateway may have sent it."""


class Newsletter:
    def __init__(self, service_url, key, wait=time.sleep):
        self.service_url, self.key, self.wait = service_url, key, wait
        self.unreachable = set()  # addresses
        self.mailed_at = {}  # the addresses that got a mail in the last ten minutes, and when
        self.mails_of_day = []  # each mail of the last day that was sent, or may have been: its address, and when
        # Addresses to opt out of everything, and how often the job found no contact; in your program: a table.
        self.opt_outs = {}
        self._clicks = {}
        self._pending = {}  # in your program: a table, whose rows expire
        self._seen_events = set()
        self._lock = threading.Lock()

    def sign_up(self, address, first_name):
        """Asks for a confirmation by mail. The address is no contact before it.

        Returns the id of the mail, or `None` if none may be sent now: an address gets one in ten minutes, and five in a
        day. Show the visitor the same page in both cases. After an exception, the visitor can try again immediately.
        """
        token, address = secrets.token_urlsafe(), normalized(address)
        with self._lock:
            now = time.monotonic()
            self.mailed_at = {other: at for other, at in self.mailed_at.items() if now - at < 600}
            self.mails_of_day = [(other, at) for other, at in self.mails_of_day if now - at < 86_400]
            has_enough = [other for other, _ in self.mails_of_day].count(address) >= 5
            if has_enough or address in self.mailed_at or address in self.unreachable:
                return None
            self.mailed_at[address] = now
            self.mails_of_day.append((address, now))
        self._pending[token] = {"address": address, "first_name": first_name}
        mail = {
            "from": "news@example.com",
            "to": address,
            "subject": "Please confirm your address",  # no text from the form: a stranger may have written it
            "text": f"https://example.com/confirm?token={token}",
        }
        try:
            mail_id = parsed(self._send("POST", "/emails", mail)).get("id")
            if not isinstance(mail_id, str):
                raise Unusable("the mail has no id")
            return mail_id
        except Exception as error:
            with self._lock:
                self.mailed_at.pop(address, None)  # the visitor can try again immediately
                # Otherwise it may have been sent, and counts: a stranger could have it sent again and again.
                if was_not_sent(error):
                    self.mails_of_day.remove((address, now))
            raise

    def confirm(self, token):
        """Records the consent to the topic `news`, after the click. Returns whether it is recorded.

        It is not if the token is unknown. If another click or the job was running for the address, it may not be, and
        the person can click again. A new contact, or one that had opted out of everything, is subscribed to no other
        topic, whatever its default.
        """
        signup = self._pending.get(token)
        if signup is None:
            return False
        address = signup["address"]
        with self._click(address) as has_waited:
            if has_waited or token not in self._pending:
                # Another click has ended, maybe with a failure, and an opt-out may be newer than both. Send nothing.
                contact = self._retrieve(address)
                is_on = contact["topics"]["news"] and not contact["unsubscribed"] and address not in self.opt_outs
                if is_on:
                    self._pending.pop(token, None)
                return is_on
            contact = self._find(address)
            # In the last case, an earlier click has created the contact, and then it failed.
            starts_over = contact is None or contact["unsubscribed"] or address in self.opt_outs
            if contact is None:
                self.opt_outs[address] = 0  # before the create: a new contact has the default of every topic
                new = {"email": address, "first_name": signup["first_name"], "on_conflict": "skip"}
                self._send("POST", "/contacts", new, attempts=3)
            if address in self.opt_outs:
                if contact is None or not is_opted_out(contact):
                    contact = self._record(address, "unsubscribe")
                del self.opt_outs[address]
            for topic, is_subscribed in contact["topics"].items():
                # The other answers "no" are recorded again: they may be mere defaults, and a default can change.
                if topic != "news" and (starts_over or not is_subscribed):
                    self._record(address, "unsubscribe", topic)
            self._record(address, "subscribe", "news")
            if starts_over:
                self._record(address, "subscribe")  # last: until now, no broadcast was delivered
            del self._pending[token]
            return True

    def send_opt_outs(self):
        """Opts out whom a click has created, before it failed. A job calls it each minute until `opt_outs` is empty."""
        failed = None
        for address in list(self.opt_outs):
            try:
                with self._click(address):
                    if address not in self.opt_outs:
                        continue
                    contact = self._find(address)
                    if contact is not None:
                        if not is_opted_out(contact):
                            self._record(address, "unsubscribe")
                    elif self.opt_outs[address] < 5:  # the service may still apply the create request
                        self.opt_outs[address] += 1
                        continue
                    del self.opt_outs[address]
            except Exception as error:
                logging.warning("an opt-out failed, and the next run of the job retries it: %r", error)
                failed = error  # the other addresses do not wait for this one
        if failed:
            raise failed

    def handle(self, event):
        """Acts on an event of the service, once: the service may deliver it several times."""
        with self._lock:
            if event["id"] in self._seen_events:
                return
            data = event["data"]
            bounced = event["type"] == "email.bounced" and data.get("bounce_type") == "Permanent"
            if bounced or event["type"] == "email.complained":
                if not data["to"].strip():
                    raise ValueError("the event has no address")
                self.unreachable.add(normalized(data["to"]))
            self._seen_events.add(event["id"])  # last: an event that failed must be handled again

    @contextlib.contextmanager
    def _click(self, address):
        """Holds the lock of an address, and says whether it was busy. In your program: its row in the database."""
        with self._lock:
            lock = self._clicks.setdefault(address, threading.Lock())
        has_waited = not lock.acquire(blocking=False)
        if has_waited:
            lock.acquire()
        try:
            yield has_waited
        finally:
            lock.release()

    def _record(self, address, answer, topic=None):
        """Records the answer `subscribe` or `unsubscribe`. Returns the contact, which has it."""
        # An opt-in is not repeated, and has little time: it could undo an opt-out that was made in between. The person
        # can click again.
        attempts, timeout = (3, 30) if answer == "unsubscribe" else (1, 5)
        body = {"topic": topic} if topic else {}
        self._send("POST", f"{contact_path(address)}/{answer}", body, attempts, timeout)
        # A gateway can send a 200, too.
        contact = self._retrieve(address)
        is_on = contact["topics"].get(topic) if topic else not contact["unsubscribed"]
        if is_on != (answer == "subscribe"):
            raise Unusable(f"{answer} is not recorded")
        return contact

    def _retrieve(self, address):
        contact = parsed(self._send("GET", contact_path(address), attempts=3))
        if normalized(contact.get("email", "")) != address or "topics" not in contact:
            raise Unusable("this is not the contact")
        return contact

    def _find(self, address):
        """Returns the contact, or `None` if there is none."""
        try:
            return self._retrieve(address)
        except Refused as refused:
            if refused.status != 404:
                raise
            # A gateway can send a 404, too.
            if self._is_listed(address):
                raise
            return None

    def _is_listed(self, address):
        # The query also finds longer addresses that contain this one, and the newest contacts come first.
        query = {"query": address, "limit": 200}
        while True:
            page = parsed(self._send("GET", f"/contacts?{urllib.parse.urlencode(query)}", attempts=3))
            if "data" not in page:
                raise Unusable("this is not a list")
            if any(normalized(contact["email"]) == address for contact in page["data"]):
                return True
            if not page["data"]:
                return False
            if not page.get("next") or page["next"] == query.get("after"):
                raise Unusable("the list has no end")
            query["after"] = page["next"]

    def _send(self, method, path, body=None, attempts=1, timeout=30):
        """Sends a request, and returns the response's body. Only what may safely be repeated has several attempts."""
        while True:
            attempts -= 1
            seconds = 1
            try:
                response, text = self._exchange(method, path, body, timeout)
                if 200 <= response.status < 300:
                    return text
                seconds = seconds_of(response.headers.get("retry-after", ""))
                is_over = attempts == 0 or seconds > 60  # others wait for the address, too
                if response.status not in TRANSIENT or is_over:  # a redirect could lead the key to another host
                    raise Refused(response.status, text.decode(errors="replace"))
            except (OSError, http.client.HTTPException):  # no connection, one that broke, or a timeout
                if attempts == 0:
                    raise
            self.wait(seconds)

    def _exchange(self, method, path, body, timeout):
        """Sends a request once. Returns the response and its body, which end within `timeout` after the connection.

        The timeout of a socket is that of each read, so a response that arrives byte by byte would never reach it.
        """
        service = urllib.parse.urlsplit(self.service_url)
        is_https = service.scheme == "https"
        connection_type = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with contextlib.closing(connection_type(service.netloc, timeout=timeout)) as connection:
            connection.connect()
            end = time.monotonic() + timeout
            watch = threading.Timer(timeout, connection.sock.shutdown, [socket.SHUT_RDWR])  # ends each read
            watch.start()
            try:
                connection.request(method, service.path + path, data, headers)
                response = connection.getresponse()
                text = response.read(LONGEST_RESPONSE)
            finally:
                watch.cancel()
            if time.monotonic() >= end:
                raise TimeoutError("the response did not end in time")
            if response.length and len(text) < LONGEST_RESPONSE:
                raise http.client.IncompleteRead(text, response.length)
            return response, text


def is_opted_out(contact):
    """Whether no broadcast reaches a contact. Another opt-out could replace the reason `complaint` of a spam report."""
    return contact["unsubscribed"] or contact.get("unsubscribe_reason") == "complaint"


def was_not_sent(error):
    """Whether the service has certainly not applied a request: it refused it, or there was no connection."""
    if isinstance(error, Refused):
        return error.status == 501 or 400 <= error.status < 500 and error.status != 408
    return isinstance(error, (ConnectionRefusedError, socket.gaierror))


def seconds_of(retry_after):
    """Returns the wait that the header asks for, by a number of seconds or a date: at least 1 s."""
    try:
        if retry_after.isdecimal():
            return max(int(retry_after), 1)
        return max(email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time(), 1)
    except (ValueError, TypeError):  # neither of them
        return 1


def normalized(address):
    return address.strip().lower()


def parsed(body):
    """Returns the JSON object of a response."""
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unusable("the response is no JSON object")
    return value


def contact_path(address):
    return f"/contacts/{urllib.parse.quote(address, safe='')}"


def is_genuine(secret, headers, body, now):
    """Whether the service sent this delivery, and lately: a MAC over the raw body, compared in constant time."""
    timestamp = headers.get("webhook-timestamp", "")
    mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    signature, *others = headers.get_all("webhook-signature", [""])
    if others or not hmac.compare_digest(mac.encode(), signature.encode()):
        return False
    return timestamp.isdecimal() and abs(now - int(timestamp)) <= 300


def serve_webhooks(newsletter, secret, port=0):
    """Starts a server for deliveries in the background."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10  # seconds for each read: a proxy in front of this server should limit the whole request

        def do_POST(self):
            self.send_response(self.handle_delivery())
            self.end_headers()

        def handle_delivery(self):
            length = self.headers.get("content-length", "")
            if not length.isdecimal():
                return 411  # this server reads no body that is sent in chunks
            if int(length) > 2 * 1024 * 1024:
                return 413
            body = self.rfile.read(int(length))
            if not is_genuine(secret, self.headers, body, time.time()):
                return 401
            try:
                newsletter.handle(json.loads(body))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                logging.warning("a signed delivery is no event, or has no address: %r", error)
                return 400
            return 204

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server
