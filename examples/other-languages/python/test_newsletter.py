"""The tests of the newsletter and of the receiver. `run_tests.py` runs them with or without pytest."""

import concurrent.futures
import contextlib
import email.utils
import http.client
import http.server
import os
import socket
import threading
import time

from fixtures import SECRET
from newsletter import Refused, Unusable, serve_webhooks

os.environ["AUDIENCE_WEBHOOK_SECRET"] = SECRET
import receiver


@contextlib.contextmanager
def refused_with(status):
    try:
        yield
    except Refused as refused:
        assert refused.status == status
    else:
        raise AssertionError("it was not refused")


@contextlib.contextmanager
def not_from_the_service():
    try:
        yield
    except Unusable:
        pass
    else:
        raise AssertionError("the response was believed")


def mailed_token(mock):
    """Returns the token in the link of the last mail."""
    mail = mock.control("GET", "emails")["data"][-1]
    return mail["body"]["text"].partition("token=")[2]


def statuses(mock):
    return [request["status"] for request in mock.control("GET", "requests")["data"]]


def test_who_signs_up_is_a_contact_only_after_the_confirmation(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")

    [mail] = mock.control("GET", "emails")["data"]
    assert (mail["to"], mail["subject"]) == (["cy@example.com"], "Please confirm your address")
    addresses = [contact["email"] for contact in mock.control("GET", "contacts")["data"]]
    assert "cy@example.com" not in addresses

    assert newsletter.confirm(mailed_token(mock))

    assert mock.contact("cy@example.com")["answers"] == {"news": True, "offers": False}
    assert not newsletter.confirm("another token")


def test_an_address_gets_one_confirmation_mail_in_ten_minutes(mock, newsletter):
    mock.control("POST", "faults", {"status": 501, "times": 1, "path": "/emails"})
    with refused_with(501):
        newsletter.sign_up("cy@example.com", "Cy")

    assert newsletter.sign_up("cy@example.com", "Cy")
    assert newsletter.sign_up(" CY@example.com", "Cy") is None

    assert len(mock.control("GET", "emails")["data"]) == 1
    newsletter.mailed_at["cy@example.com"] -= 600
    assert newsletter.sign_up("cy@example.com", "Cy")


def test_who_tries_again_after_a_failure_gets_a_mail(mock, newsletter):
    faults = [{"status": 202, "body": body} for body in ["", "{}", "[]", '{"id": null}']]
    faults += [{"status": 503}, {"close": "after"}]
    for number, fault in enumerate(faults):
        mock.control("POST", "faults", {**fault, "times": 1, "path": "/emails"})
        try:
            newsletter.sign_up(f"cy{number}@example.com", "Cy")
            raise AssertionError("the response was believed")
        except (Unusable, Refused, OSError):
            pass

        assert newsletter.sign_up(f"cy{number}@example.com", "Cy")
        assert newsletter.sign_up(f"cy{number}@example.com", "Cy") is None


def test_an_address_gets_five_mails_in_a_day_and_those_that_may_have_been_sent_count(mock, newsletter):
    mock.control("POST", "faults", {"status": 503, "times": 5, "path": "/emails"})
    for _ in range(5):
        with refused_with(503):
            newsletter.sign_up("cy@example.com", "Cy")

    assert newsletter.sign_up("cy@example.com", "Cy") is None

    assert statuses(mock) == 5 * [503]
    assert newsletter.sign_up("dee@example.com", "Dee")
    newsletter.mails_of_day = [(address, at - 86_400) for address, at in newsletter.mails_of_day]
    assert newsletter.sign_up("cy@example.com", "Cy")


def test_a_confirmation_mail_that_was_refused_or_had_no_connection_does_not_count(mock, newsletter):
    mock.control("POST", "faults", {"status": 422, "times": 5, "path": "/emails"})
    for _ in range(5):
        with refused_with(422):
            newsletter.sign_up("cy@example.com", "Cy")
    service_url, newsletter.service_url = newsletter.service_url, "http://127.0.0.1:1"
    try:
        newsletter.sign_up("cy@example.com", "Cy")
        raise AssertionError("there is a server")
    except OSError:
        newsletter.service_url = service_url

    assert newsletter.sign_up("cy@example.com", "Cy")


def test_a_new_contact_gets_no_other_topic_after_a_failure_and_another_click(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")
    mock.control("POST", "faults", {"status": 501, "times": 1, "path": "*/unsubscribe"})

    with refused_with(501):
        newsletter.confirm(mailed_token(mock))
    assert newsletter.confirm(mailed_token(mock))

    contact = mock.contact("cy@example.com")
    assert (contact["unsubscribed"], contact["answers"]) == (False, {"news": True, "offers": False})


def test_a_new_contact_whose_click_failed_is_opted_out_by_the_job_or_by_another_link(mock, newsletter):
    for address, has_job in [("cy@example.com", True), ("dee@example.com", False)]:
        newsletter.sign_up(address, "Cy")
        mock.control("POST", "faults", {"status": 501, "times": 1, "path": "*/unsubscribe"})
        with refused_with(501):
            newsletter.confirm(mailed_token(mock))
        assert newsletter.opt_outs == {address: 0}
        if has_job:
            newsletter.send_opt_outs()
            assert mock.contact(address)["unsubscribed"]
        newsletter.mailed_at.clear()  # ten minutes later
        newsletter.sign_up(address, "Cy")

        assert newsletter.confirm(mailed_token(mock))

        contact = mock.contact(address)
        assert (contact["unsubscribed"], contact["answers"]) == (False, {"news": True, "offers": False})
        assert newsletter.opt_outs == {}


def test_the_job_looks_a_few_times_for_a_contact_whose_creation_had_no_response(mock, newsletter):
    for address, is_created in [("cy@example.com", True), ("dee@example.com", False)]:
        newsletter.sign_up(address, "Cy")
        mock.control("POST", "faults", {"status": 504, "times": 3, "method": "POST", "path": "/contacts"})
        with refused_with(504):
            newsletter.confirm(mailed_token(mock))
        newsletter.send_opt_outs()
        assert newsletter.opt_outs == {address: 1}
        if is_created:
            mock.control("PUT", f"contacts/{address}", {})
            newsletter.send_opt_outs()
            assert mock.contact(address)["unsubscribed"]
        else:
            for _ in range(5):
                newsletter.send_opt_outs()
        assert newsletter.opt_outs == {}


def test_a_404_of_a_gateway_changes_nothing(mock, newsletter):
    mock.control("PUT", "contacts/di@example.com", {"answers": {"offers": True}})
    newsletter.sign_up("di@example.com", "Di")
    fault = {"method": "GET", "path": "/contacts/*", "status": 404, "body": "<html>", "times": 1}
    mock.control("POST", "faults", fault)

    with refused_with(404):
        newsletter.confirm(mailed_token(mock))

    assert mock.contact("di@example.com")["answers"] == {"offers": True}
    assert newsletter.confirm(mailed_token(mock))
    assert mock.contact("di@example.com")["answers"] == {"news": True, "offers": True}


def test_an_old_contact_is_found_behind_newer_ones_whose_addresses_contain_its_own(mock, newsletter):
    newer = [{"email": f"x{number}an@x.io", "created_at": 1_700_000_000} for number in range(200)]
    old = {"email": "an@x.io", "created_at": 1_600_000_000}
    mock.control("POST", "seed", {"contacts": [*newer, old]})
    newsletter.opt_outs = {"an@x.io": 5}  # the job has looked for the contact a few times
    mock.control("POST", "faults", {"method": "GET", "path": "/contacts/*", "status": 404, "times": 1})

    with refused_with(404):
        newsletter.send_opt_outs()

    assert newsletter.opt_outs == {"an@x.io": 5}
    newsletter.send_opt_outs()
    assert mock.contact("an@x.io")["unsubscribed"]


def test_a_list_that_does_not_end_ends_no_opt_out(mock, newsletter):
    newsletter.opt_outs = {"cy@example.com": 5}
    page = {"data": [{"email": "xcy@example.com"}], "next": "c1"}
    mock.control("POST", "faults", {"status": 200, "body": page, "path": "/contacts"})

    with not_from_the_service():
        newsletter.send_opt_outs()

    assert newsletter.opt_outs == {"cy@example.com": 5}


LIES = ["<html>", "", "[]", "{}", '{"ok": true}']


def test_an_answer_of_a_gateway_loses_no_opt_out_and_confirms_nothing(mock, newsletter):
    for number, body in enumerate(LIES):
        address = f"cy{number}@example.com"
        newsletter.sign_up(address, "Cy")
        for path in ["*/unsubscribe", "*/subscribe"]:
            mock.control("POST", "faults", {"status": 200, "body": body, "times": 1, "path": path})

            with not_from_the_service():
                newsletter.confirm(mailed_token(mock))

            assert newsletter.opt_outs == ({address: 0} if path == "*/unsubscribe" else {})
        assert mock.contact(address)["unsubscribed"]
        assert newsletter.confirm(mailed_token(mock))
        assert mock.contact(address)["answers"] == {"news": True, "offers": False}


def test_the_job_sends_an_opt_out_until_the_service_has_it(mock, newsletter):
    for number, body in enumerate(LIES):
        newsletter.sign_up(f"cy{number}@example.com", "Cy")
        mock.control("POST", "faults", {"status": 501, "times": 1, "path": "*/unsubscribe"})
        with refused_with(501):
            newsletter.confirm(mailed_token(mock))
        mock.control("POST", "faults", {"status": 200, "body": body, "times": 1, "path": "*/unsubscribe"})

        with not_from_the_service():
            newsletter.send_opt_outs()

        assert newsletter.opt_outs == {f"cy{number}@example.com": 0}
        newsletter.send_opt_outs()
        assert mock.contact(f"cy{number}@example.com")["unsubscribed"]
        assert newsletter.opt_outs == {}


def test_the_reason_of_a_spam_report_stays(mock, newsletter):
    newsletter.sign_up("bob@example.com", "Bob")
    newsletter.opt_outs = {"bob@example.com": 0}

    with refused_with(422):
        newsletter.confirm(mailed_token(mock))
    newsletter.opt_outs = {"bob@example.com": 0}
    newsletter.send_opt_outs()

    assert newsletter.opt_outs == {}
    requests = mock.control("GET", "requests")["data"]
    opt_outs = [request for request in requests if request["path"].endswith("/unsubscribe")]
    assert all("topic" in request["body"] for request in opt_outs)


def test_the_job_continues_after_any_failure(mock, newsletter):
    newsletter.opt_outs = {"ada@example.com": 0, "bob@example.com": 0}
    mock.control("POST", "faults", {"status": 200, "body": {"email": 5}, "times": 1})

    try:
        newsletter.send_opt_outs()
        raise AssertionError("the response was believed")
    except AttributeError:
        pass

    assert newsletter.opt_outs == {"ada@example.com": 0}
    newsletter.send_opt_outs()
    assert mock.contact("ada@example.com")["unsubscribed"]


class WatchedLock:
    """A lock that says when somebody waits for it."""

    def __init__(self):
        self.lock, self.is_awaited = threading.Lock(), threading.Event()
        self.release = self.lock.release

    def acquire(self, blocking=True):
        is_acquired = self.lock.acquire(blocking=False)
        if not is_acquired:
            self.is_awaited.set()
        return is_acquired or blocking and self.lock.acquire()


def click_twice(mock, newsletter, address):
    """The second click arrives while the first one is running. Returns the result or the exception of each."""
    lock = newsletter._clicks[address] = WatchedLock()
    newsletter.wait = lambda _: lock.is_awaited.wait(60)
    mock.control("POST", "faults", {"method": "GET", "status": 503, "times": 1})
    token = mailed_token(mock)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        clicks = [pool.submit(newsletter.confirm, token) for _ in range(2)]
    return [click.exception() or click.result() for click in clicks]


def test_a_click_that_waited_for_another_sends_nothing(mock, newsletter):
    mock.control("PUT", "contacts/di@example.com", {})
    newsletter.sign_up("di@example.com", "Di")
    mock.control("POST", "faults", {"status": 501, "times": 1, "path": "*/subscribe"})

    results = click_twice(mock, newsletter, "di@example.com")

    assert [result for result in results if not isinstance(result, Refused)] == [False]
    paths = [request["path"] for request in mock.control("GET", "requests")["data"]]
    assert sum(path.endswith("/subscribe") for path in paths) == 1
    assert newsletter.confirm(mailed_token(mock))


def test_of_two_clicks_at_once_one_is_recorded(mock, newsletter):
    newsletter.sign_up(" Cy@example.com", "Cy")

    assert click_twice(mock, newsletter, "cy@example.com") == [True, True]

    paths = [request["path"] for request in mock.control("GET", "requests")["data"]]
    assert sum(path.endswith("/subscribe") for path in paths) == 2  # to `news`, and to everything
    assert mock.contact("cy@example.com")["answers"] == {"news": True, "offers": False}


def test_a_contact_keeps_its_other_topics(mock, newsletter):
    mock.control("PUT", "contacts/di@example.com", {"answers": {"offers": True}})
    newsletter.sign_up("di@example.com", "Di")

    newsletter.confirm(mailed_token(mock))

    assert mock.contact("di@example.com")["answers"] == {"news": True, "offers": True}


def test_who_opted_out_of_everything_gets_only_the_newsletter_again_after_the_confirmation(mock, newsletter):
    contact = {"email": "di@example.com", "unsubscribe_reason": "manual"}
    mock.control("PUT", "contacts/di@example.com", contact)
    newsletter.sign_up("di@example.com", "Di")

    newsletter.confirm(mailed_token(mock))

    contact = mock.contact("di@example.com")
    assert (contact["unsubscribed"], contact["answers"]) == (False, {"news": True, "offers": False})


def test_who_reported_spam_cannot_be_subscribed_again(mock, newsletter):
    newsletter.sign_up("bob@example.com", "Bob")

    with refused_with(422):
        newsletter.confirm(mailed_token(mock))

    assert mock.contact("bob@example.com")["unsubscribed"]


def test_a_short_outage_is_waited_out(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")
    mock.control("POST", "faults", {"method": "POST", "status": 503, "retry_after": 1, "path": "/contacts", "times": 2})

    newsletter.confirm(mailed_token(mock))

    assert statuses(mock) == [200, 404, 200, 503, 503, 201] + 8 * [200]


def test_nobody_waits_for_an_hour(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")
    waits = []
    newsletter.wait = waits.append
    for retry_after in ["3600", email.utils.formatdate(time.time() + 3600, usegmt=True)]:
        fault = {"method": "GET", "status": 503, "headers": {"retry-after": retry_after}, "times": 1}
        mock.control("POST", "faults", fault)

        with refused_with(503):
            newsletter.confirm(mailed_token(mock))

    assert waits == []


def test_a_retry_waits_until_the_date_of_the_response_and_at_least_a_second(mock, newsletter):
    date = email.utils.formatdate(time.time() + 40, usegmt=True)
    past = "Sun, 06 Nov 1994 08:49:37 GMT"
    for retry_after, least, most in [(date, 10, 40), (past, 1, 1), ("-5", 1, 1), ("0", 1, 1), ("soon", 1, 1), ("7", 7, 7)]:
        waits = []
        newsletter.wait = waits.append
        fault = {"method": "GET", "status": 503, "headers": {"retry-after": retry_after}, "times": 1}
        mock.control("POST", "faults", fault)

        newsletter.opt_outs = {"ada@example.com": 0}
        newsletter.send_opt_outs()

        [seconds] = waits
        assert least <= seconds <= most, retry_after


@contextlib.contextmanager
def slow_server(start, byte):
    """Responds with `start` and then a byte each 50 ms, until the client closes the connection, or for 5 minutes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(start)
                for _ in range(6000):
                    time.sleep(0.05)
                    connection.sendall(byte)

        thread = threading.Thread(target=respond)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_timeout_is_that_of_the_whole_response(mock, newsletter):
    head = b"HTTP/1.1 200 OK\r\n"
    for start in [b"", head, head + b"\r\n", head + b"content-length: 10000\r\n\r\n"]:
        with slow_server(start, b"x") as newsletter.service_url:
            began = time.monotonic()
            try:
                newsletter._send("GET", "/contacts", timeout=0.5)
                raise AssertionError("it waited")
            except (OSError, http.client.HTTPException):
                assert time.monotonic() - began < 200


def test_a_response_without_its_end_is_no_response(mock, newsletter):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        newsletter.service_url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def respond():
            for body in [b"{", b"{}"]:
                with listener.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" + body)

        thread = threading.Thread(target=respond)
        thread.start()
        assert newsletter._send("GET", "/contacts", attempts=2) == b"{}"
        thread.join()


def test_a_redirect_is_not_followed(mock, newsletter):
    elsewhere = {"location": f"{mock.url}/elsewhere"}
    mock.control("POST", "faults", {"status": 302, "headers": elsewhere, "path": "/emails"})

    with refused_with(302):
        newsletter.sign_up("cy@example.com", "Cy")

    assert statuses(mock) == [302]


def test_a_connection_that_breaks_is_retried_where_that_is_safe(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")
    mock.control("POST", "faults", {"method": "POST", "close": "after", "path": "/contacts", "times": 1})
    mock.control("POST", "faults", {"close": "before", "path": "*/subscribe", "times": 1})

    try:
        newsletter.confirm(mailed_token(mock))
        raise AssertionError("the opt-in was repeated")
    except OSError:
        pass

    assert statuses(mock) == [200, 404, 200, None, 200, 200, 200, 200, 200, None]


def test_an_opt_in_that_failed_is_repeated_only_by_another_click(mock, newsletter):
    newsletter.sign_up("cy@example.com", "Cy")
    mock.control("POST", "faults", {"status": 503, "times": 1, "path": "*/subscribe"})

    with refused_with(503):
        newsletter.confirm(mailed_token(mock))

    before = [200, 404, 200, 201, 200, 200, 200, 200, 503]
    assert statuses(mock) == before
    assert newsletter.confirm(mailed_token(mock))
    assert statuses(mock) == before + 7 * [200]


def test_an_address_that_bounces_gets_no_further_mail(mock, newsletter):
    newsletter.sign_up("bounce@example.com", "Bo")
    mock.wait_for_deliveries()

    assert newsletter.unreachable == {"bounce@example.com"}
    assert [attempt["status"] for attempt in mock.control("GET", "attempts")["data"]] == [204, 204]
    newsletter.mailed_at.clear()  # ten minutes later
    assert newsletter.sign_up("bounce@example.com", "Bo") is None
    assert len(mock.control("GET", "emails")["data"]) == 1


def test_an_event_that_is_delivered_twice_counts_once(mock, newsletter):
    mock.control("POST", "delivery-faults", {"kind": "duplicate", "times": 1})

    event = {"type": "email.complained", "data": {"to": "Ada@Example.com"}}
    mock.control("POST", "events", event)

    assert newsletter.unreachable == {"ada@example.com"}
    assert len(mock.control("GET", "attempts")["data"]) == 2


def test_an_event_without_an_address_is_refused_and_the_next_one_is_handled(mock, newsletter):
    for address in [["ada@example.com"], " ", "ada@example.com"]:
        mock.control("POST", "events", {"type": "email.complained", "data": {"to": address}})

    assert newsletter.unreachable == {"ada@example.com"}
    assert [attempt["status"] for attempt in mock.control("GET", "attempts")["data"]] == [400, 400, 204]


def test_a_forged_delivery_is_refused(mock, newsletter):
    mock.control("POST", "delivery-faults", {"kind": "tampered", "times": 1})

    event = {"type": "email.complained", "data": {"to": "ada@example.com"}}
    mock.control("POST", "events", event)

    assert newsletter.unreachable == set()
    assert mock.control("GET", "attempts")["data"][0]["status"] == 401


@contextlib.contextmanager
def running_receiver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), receiver.Receiver)
    server.handle_error = lambda *_: None  # does not print the exception
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_an_event_that_could_not_be_stored_is_stored_when_it_is_delivered_again(mock, newsletter):
    class Full(dict):
        def setdefault(self, *_):
            raise OSError("no space")

    receiver.events = Full()
    with running_receiver() as port:
        url = f"http://127.0.0.1:{port}/hook"
        mock.control("PUT", "endpoints/newsletter", {"url": url, "secret": SECRET})
        event = mock.control("POST", "events", {"type": "email.opened", "data": {"to": "ada@example.com"}})
        receiver.events = {}
        mock.control("POST", f"events/{event['id']}/redeliver")

    assert [attempt["status"] for attempt in mock.control("GET", "attempts")["data"]] == [None, 200]
    assert list(receiver.events) == [event["id"]]


def test_a_body_that_is_too_long_is_refused_before_it_is_read(mock, newsletter):
    server = serve_webhooks(newsletter, SECRET)
    with running_receiver() as port:
        for port in [port, server.server_port]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.putrequest("POST", "/hook")
            connection.putheader("content-length", str(2 * 1024 * 1024 + 1))
            connection.endheaders()
            assert connection.getresponse().status == 413
            connection.close()
    server.shutdown()
    server.server_close()
